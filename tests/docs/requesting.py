"""Sends requests to one of docs/examples, in a process of its own: ``python -m tests.docs.requesting NAME``.

Makes the application's tables, then prints what it answers to each title as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

TITLES = ("a", "b", " ", "a")
"""Two that are good, one that is refused after its job was registered, one that violates a constraint."""


def of_fastapi(module: Any) -> Callable[[str], int]:
    import psycopg
    from fastapi.testclient import TestClient

    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute(module.SCHEMA)
    client: Any = TestClient(module.app, raise_server_exceptions=False)
    return lambda title: int(client.post("/documents", json={"title": title}).status_code)


def of_flask(module: Any) -> Callable[[str], int]:
    module.Base.metadata.create_all(module.engine)
    client = module.app.test_client()
    return lambda title: int(client.post("/documents", json={"title": title}).status_code)


def of_django(module: Any) -> Callable[[str], int]:
    from django.db import connection
    from django.test import Client

    with connection.schema_editor() as editor:
        editor.create_model(module.Document)
        editor.create_model(module.Embedding)
    client = Client(raise_request_exception=False)
    return lambda title: (
        client.post("/documents", {"title": title}, content_type="application/json").status_code
    )


def main(name: str) -> None:
    sys.path.insert(0, os.getcwd())
    module = importlib.import_module(name)
    post = {"fastapi_app": of_fastapi, "flask_app": of_flask, "django_app": of_django}[name](module)
    print(json.dumps([post(title) for title in TITLES]))


if __name__ == "__main__":
    main(sys.argv[1])
