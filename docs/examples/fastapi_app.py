"""A FastAPI application: a document and its job are committed together, or not at all.

DATABASE_URL=postgresql://app@localhost/app uvicorn fastapi_app:app
jobctl worker fastapi_app:handlers --backend "$DATABASE_URL"
"""

from __future__ import annotations

import os

import psycopg
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from jobcontract import Handlers, JobContext, JobInput, once
from jobcontract.aio import get_backend

DATABASE_URL = os.environ["DATABASE_URL"]
SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text UNIQUE);
CREATE TABLE IF NOT EXISTS embeddings (document_id bigint NOT NULL, attempt integer NOT NULL);
"""


class EmbedDocument(JobInput, kind="embed_document"):
    document_id: int

    def idempotency_key(self) -> str:
        return f"document:{self.document_id}"


class NewDocument(BaseModel):
    title: str


app = FastAPI()
backend = get_backend(DATABASE_URL)  # get_backend() reads jobcontract.toml


@app.post("/documents", status_code=201)
async def add_document(document: NewDocument) -> dict[str, str | int]:
    # In the endpoint, and not in a dependency with `yield`: that may commit after the response was sent.
    async with await psycopg.AsyncConnection.connect(DATABASE_URL) as connection:
        cursor = await connection.execute(
            "INSERT INTO documents (title) VALUES (%s) RETURNING id", (document.title,)
        )
        row = await cursor.fetchone()
        assert row is not None
        registration = await backend.register(EmbedDocument(document_id=row[0]), connection=connection)
        if not document.title.strip():  # whatever goes wrong from here on takes the job back, too
            raise HTTPException(422, "a document needs a title")
    return {"id": row[0], "job": str(registration.job_id)}


handlers = Handlers()


@handlers.handler(EmbedDocument, timeout="10m")
def embed(input: EmbedDocument, context: JobContext) -> None:
    with psycopg.connect(DATABASE_URL) as connection:
        if once(connection, context):
            connection.execute(
                "INSERT INTO embeddings (document_id, attempt) VALUES (%s, %s)",
                (input.document_id, context.attempt),
            )
