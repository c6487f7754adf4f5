"""An application with tracing, as a process of its own: a tracer provider is set once per process.

``python -m tests.telemetry.program BACKEND [joined|awaited DATABASE]`` in a folder with a configuration:
registers four jobs, three of them within the span "request", relays them where the backend has an outbox,
runs them, and prints every span as a line of JSON. With the URL of a PostgreSQL database they are registered
in a transaction of the program's own there, "awaited" through `jobcontract.aio`.
"""

from __future__ import annotations

import asyncio
import json
import sys

import psycopg
from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from jobcontract import Backend, Handlers, Job, get_backend
from jobcontract.aio import AsyncBackend
from jobcontract.config import load_settings
from jobcontract.errors import Dead
from jobcontract.worker import Worker, WorkerOptions

QUEUE = "default"
FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ONE = Job(kind="plain", input_ref={"secret": "canary-input"})
TWO = [Job(kind="awaited"), Job(kind="failing", headers={"tenant": "acme"})]
TRACED_ELSEWHERE = Job(kind="plain", headers={"traceparent": FOREIGN})
handlers = Handlers()


@handlers.handler("plain")
def plain(given: dict[str, object]) -> None:
    with trace.get_tracer("application").start_as_current_span("within plain"):
        del given


@handlers.handler("awaited")
async def awaited(given: dict[str, object]) -> None:
    with trace.get_tracer("application").start_as_current_span("within awaited"):
        del given


@handlers.handler("failing", max_attempts=1)
def failing(given: dict[str, object]) -> None:
    raise Dead("canary-error")


def work(backend: Backend) -> None:
    Worker(backend, handlers, WorkerOptions(queues=(QUEUE,), until_empty=True)).run()


def register(backend: Backend, connection: psycopg.Connection | None) -> None:
    with trace.get_tracer("application").start_as_current_span("request"):
        backend.register(ONE, connection=connection)
        backend.register_many(TWO, connection=connection)
    backend.register(TRACED_ELSEWHERE, connection=connection)


async def register_awaited(backend: AsyncBackend, database: str) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        with trace.get_tracer("application").start_as_current_span("request"):
            await backend.register(ONE, connection=connection)
            await backend.register_many(TWO, connection=connection)
        await backend.register(TRACED_ELSEWHERE, connection=connection)


def main() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    name = sys.argv[1]
    settings = load_settings()
    with get_backend(name, settings=settings) as backend:
        backend.install()
        match sys.argv[2:]:
            case ["awaited", database]:
                asyncio.run(register_awaited(AsyncBackend(backend), database))
            case ["joined", database]:
                with psycopg.connect(database) as connection:
                    register(backend, connection)
            case _:
                register(backend, None)
        if settings.backends[name].outbox is not None:
            relay = Relay(find_ends(settings, (name,)), RelayOptions())
            relay.run_once()
            relay.close()
        work(backend)
    for span in exporter.get_finished_spans():
        print(json.dumps(described(span)))


def described(span: ReadableSpan) -> dict[str, object]:
    context = span.get_span_context()
    assert context is not None
    return {
        "name": span.name,
        "trace": f"{context.trace_id:032x}",
        "id": f"{context.span_id:016x}",
        "parent": f"{span.parent.span_id:016x}" if span.parent else None,
        "kind": span.kind.name,
        "links": [f"{link.context.span_id:016x}" for link in span.links],
        "attributes": dict(span.attributes or {}),
        "status": span.status.status_code.name,
        "said": span.status.description,
        "events": [event.name for event in span.events],
    }


if __name__ == "__main__":
    main()
