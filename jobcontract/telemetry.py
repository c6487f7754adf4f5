"""Spans for OpenTelemetry: one for a registration, one for what a relay publishes, one for each run of a job.

The context travels in the job's headers (``traceparent`` and whatever else the propagators write), and so
through every store and every outbox::

    the producer's span
      `-- register default             context -> headers of the job
            `-- run send_mail          headers -> context of the handler
    publish rabbitmq                   of a relay; linked to the registrations of its batch

Only the API is used, and only where the application has set a tracer provider: without one, or without the
extra ``jobcontract[telemetry]``, nothing here costs anything or touches a header. Spans hold names, ids and
numbers: no input, no key, no error's text.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from jobcontract.contract import MAX_HEADERS_BYTES, Claim, JobRecord
from jobcontract.jsontext import dump_json

if TYPE_CHECKING:
    from opentelemetry.trace import Link, SpanContext
    from opentelemetry.util.types import AttributeValue


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.trace") is not None
    except ImportError:
        return False


_INSTALLED = _is_installed()
_API = "opentelemetry.trace"
_IS_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ

_LINKED = 128
"""How many registrations a span of a relay is linked to at most: what most backends keep."""


def active() -> bool:
    """Whether the application wants spans. Asked for each job, so that it has to cost nothing if not."""
    # Who wants spans has imported it, or named a provider that is to be made at the first question.
    if not _INSTALLED or (_API not in sys.modules and not _IS_NAMED):
        return False
    from opentelemetry import trace  # here as everywhere: it is an extra

    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def registering(backend: str) -> Generator[None]:
    """Around a registration: jobs that are made ready by `carry` within are its children."""
    if not active():
        yield
        return
    with _span(f"register {backend}", "PRODUCER", {"messaging.operation.type": "send"}, backend):
        yield


def carry(records: list[JobRecord]) -> list[JobRecord]:
    """`records` with the present context in their headers; as they are where there is none, where a header
    says already which trace a job belongs to, or where it would not fit.
    """
    if not records or not active():
        return records
    from opentelemetry import propagate, trace

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    if not carrier:
        return records
    text = dump_json(carrier)
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attribute("messaging.batch.message_count", len(records))
        if len({record.queue for record in records}) == 1:
            span.set_attribute("messaging.destination.name", records[0].queue)
        if len(records) == 1:
            span.set_attribute("messaging.message.id", records[0].id)
    return [_with_headers(record, carrier, text) for record in records]


@contextmanager
def publishing(target: str, records: Sequence[JobRecord]) -> Generator[None]:
    """Around what a relay hands to its target."""
    if not active():
        yield
        return
    from opentelemetry import trace

    found = (_context_of(record.headers) for record in records[:_LINKED])
    links = [trace.Link(context) for context in found if context.is_valid]
    attributes: dict[str, AttributeValue] = {
        "messaging.operation.type": "send",
        "messaging.batch.message_count": len(records),
    }
    with _span(f"publish {target}", "PRODUCER", attributes, target, links=links):
        yield


class Run:
    """One run of a job, for its span."""

    outcome: str = ""
    """completed, failed, dead or released."""
    error_type: str = ""
    """The class of the error, where there was one."""


@contextmanager
def running(claim: Claim) -> Generator[Run]:
    """Around a handler, in the thread or task that it runs in. The caller fills in what came of it."""
    from opentelemetry import propagate, trace

    run = Run()
    attributes: dict[str, AttributeValue] = {
        "messaging.operation.type": "process",
        "messaging.destination.name": claim.job.queue,
        "messaging.message.id": str(claim.job.id),
        "jobcontract.kind": claim.job.kind,
        "jobcontract.attempt": claim.attempt,
    }
    parent = propagate.extract(claim.job.headers)
    with trace.get_tracer("jobcontract").start_as_current_span(
        f"run {claim.job.kind}",
        parent,
        trace.SpanKind.CONSUMER,
        {**attributes, "messaging.system": "jobcontract"},
        record_exception=False,
    ) as span:
        yield run
        span.set_attribute("jobcontract.outcome", run.outcome)
        if run.error_type:
            span.set_attribute("error.type", run.error_type)
            span.set_status(trace.StatusCode.ERROR)


@contextmanager
def _span(
    name: str,
    kind: str,
    attributes: Mapping[str, AttributeValue],
    backend: str,
    links: Iterable[Link] = (),
) -> Generator[None]:
    from opentelemetry import trace

    with trace.get_tracer("jobcontract").start_as_current_span(
        name,
        kind=trace.SpanKind[kind],
        attributes={**attributes, "messaging.system": "jobcontract", "jobcontract.backend": backend},
        links=list(links),
        record_exception=False,  # its text may quote what was registered
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            raise


def _with_headers(record: JobRecord, carrier: Mapping[str, str], text: str) -> JobRecord:
    if record.headers is None:
        return record._replace(headers=text)
    headers = cast("dict[str, str]", json.loads(record.headers))
    if headers.keys() & carrier.keys():
        return record
    merged = dump_json({**headers, **carrier})
    return record._replace(headers=merged) if len(merged.encode()) <= MAX_HEADERS_BYTES else record


def _context_of(headers: str | None) -> SpanContext:
    from opentelemetry import propagate, trace

    try:
        carrier: object = json.loads(headers or "{}")
    except ValueError:  # whoever publishes it will find out
        carrier = {}
    found = propagate.extract(cast("dict[str, str]", carrier if isinstance(carrier, dict) else {}))
    return trace.get_current_span(found).get_span_context()
