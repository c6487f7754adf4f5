"""An application with tracing, as a process of its own: a tracer provider is set once per process.

``python -m tests.telemetry.program BACKEND`` in a folder with a configuration: registers four jobs within the
span "request", relays them where the backend has an outbox, runs them, and prints every span as a line of
JSON.
"""

from __future__ import annotations

import json
import sys

from jobcontract_outbox import Relay, RelayOptions
from jobcontract_outbox.ends import find_ends
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from jobcontract import Backend, Handlers, Job, get_backend
from jobcontract.config import load_settings
from jobcontract.errors import Dead
from jobcontract.worker import Worker, WorkerOptions

QUEUE = "default"
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


def main() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    name = sys.argv[1]
    settings = load_settings()
    with get_backend(name, settings=settings) as backend:
        backend.install()
        with trace.get_tracer("application").start_as_current_span("request"):
            backend.register(Job(kind="plain", input_ref={"secret": "canary-input"}))
            backend.register_many([Job(kind="awaited"), Job(kind="failing", headers={"tenant": "acme"})])
        foreign = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        backend.register(Job(kind="plain", headers={"traceparent": foreign}))
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
