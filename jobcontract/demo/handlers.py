"""The handler of the demo, as `jobctl worker jobcontract.demo.handlers:handlers` runs it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from jobcontract import Handlers, JobContext, JobInput, once
from jobcontract.demo.application import Application, Connection
from jobcontract.demo.documents import extract_terms

URL_VARIABLE = "JOBCONTRACT_BACKENDS__DEMO__URL"


class ExtractTerms(JobInput, kind="extract_terms"):
    """Extract the terms of one document with one version of the model."""

    document_id: int
    model_version: str

    def idempotency_key(self) -> str:
        """One job per document and model version, however often it is registered."""
        return f"{self.document_id}:{self.model_version}"


handlers = Handlers()
_of_thread = threading.local()


@handlers.handler(ExtractTerms)
def extract(input: ExtractTerms, context: JobContext) -> None:
    """Read the document, extract its terms, write one result: in one transaction with the note that it was
    written.
    """
    application = Application(os.environ[URL_VARIABLE])
    connection = _connection(application)
    text = Path(application.document_path(connection, input.document_id)).read_text(encoding="utf-8")
    terms = extract_terms(text)
    with application.transaction(connection):
        if once(connection, context):
            application.insert_result(connection, input.document_id, input.model_version, terms)


def _connection(application: Application) -> Connection:
    """One connection for each of the worker's threads, kept for the life of the process."""
    if not hasattr(_of_thread, "connection"):
        _of_thread.connection = application.connect()
    return _of_thread.connection
