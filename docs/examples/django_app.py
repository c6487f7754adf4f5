"""A Django application in one file: a document and its job are committed together, or not at all.

DATABASE_URL=postgresql://app@localhost/app python django_app.py runserver
jobctl worker django_app:handlers --backend "$DATABASE_URL"
"""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings

DATABASE_URL = os.environ["DATABASE_URL"]
url = urlsplit(DATABASE_URL)

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(url.path.removeprefix("/")),
            "USER": unquote(url.username or ""),
            "PASSWORD": unquote(url.password or ""),
            "HOST": url.hostname or "",
            "PORT": url.port or "",
        }
    },
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402 - Django wants its settings first
from django.http import HttpRequest, HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402

from jobcontract import Handlers, JobContext, JobInput, get_backend, once  # noqa: E402


class Document(models.Model):
    title: models.TextField[str, str] = models.TextField(unique=True)

    class Meta:
        app_label = "documents"
        db_table = "documents"


class Embedding(models.Model):
    document_id: models.BigIntegerField[int, int] = models.BigIntegerField()
    attempt: models.IntegerField[int, int] = models.IntegerField()

    class Meta:
        app_label = "documents"
        db_table = "embeddings"


class EmbedDocument(JobInput, kind="embed_document"):
    document_id: int

    def idempotency_key(self) -> str:
        return f"document:{self.document_id}"


backend = get_backend(DATABASE_URL)  # get_backend() reads jobcontract.toml


class NoTitle(Exception):
    pass


def add_document(request: HttpRequest) -> HttpResponse:
    title: str = json.loads(request.body)["title"]
    try:
        with transaction.atomic():
            document = Document.objects.create(title=title)
            registration = backend.register(EmbedDocument(document_id=document.pk), connection=connection)
            if not title.strip():  # whatever goes wrong from here on takes the job back, too
                raise NoTitle
    except NoTitle:
        return JsonResponse({"error": "a document needs a title"}, status=422)
    return JsonResponse({"id": document.pk, "job": str(registration.job_id)}, status=201)


urlpatterns = [path("documents", add_document)]

handlers = Handlers()


@handlers.handler(EmbedDocument, timeout="10m")
def embed(input: EmbedDocument, context: JobContext) -> None:
    try:
        with transaction.atomic():
            if once(connection, context):
                Embedding.objects.create(document_id=input.document_id, attempt=context.attempt)
    finally:
        connection.close()  # Django's connections belong to threads, and a worker has many


if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
