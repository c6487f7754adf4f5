"""A Flask application with SQLAlchemy: a document and its job are committed together, or not at all.

DATABASE_URL=postgresql://app@localhost/app flask --app flask_app run
jobctl worker flask_app:handlers --backend "$DATABASE_URL"
"""

from __future__ import annotations

import os

from flask import Flask, abort, request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from jobcontract import Handlers, JobContext, JobInput, get_backend, once

DATABASE_URL = os.environ["DATABASE_URL"]
engine = create_engine(DATABASE_URL.replace("postgresql://", "postgresql+psycopg://", 1))


class Base(DeclarativeBase):
    pass


class Document(Base):
    __tablename__ = "documents"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(unique=True)


class Embedding(Base):
    __tablename__ = "embeddings"
    id: Mapped[int] = mapped_column(primary_key=True)
    document_id: Mapped[int]
    attempt: Mapped[int]


class EmbedDocument(JobInput, kind="embed_document"):
    document_id: int

    def idempotency_key(self) -> str:
        return f"document:{self.document_id}"


app = Flask(__name__)
backend = get_backend(DATABASE_URL)  # get_backend() reads jobcontract.toml


@app.post("/documents")
def add_document() -> tuple[dict[str, str | int], int]:
    title: str = request.get_json()["title"]
    with Session(engine) as session, session.begin():
        document = Document(title=title)
        session.add(document)
        session.flush()  # gives it its id
        registration = backend.register(EmbedDocument(document_id=document.id), connection=session)
        if not title.strip():  # whatever goes wrong from here on takes the job back, too
            abort(422, "a document needs a title")
        answer: dict[str, str | int] = {"id": document.id, "job": str(registration.job_id)}
    return answer, 201


handlers = Handlers()


@handlers.handler(EmbedDocument, timeout="10m")
def embed(input: EmbedDocument, context: JobContext) -> None:
    with Session(engine) as session, session.begin():
        if once(session, context):
            session.add(Embedding(document_id=input.document_id, attempt=context.attempt))
