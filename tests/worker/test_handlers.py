"""What can be registered as a handler, and the sentence for what can't."""

# Functions without annotations are a part of what is tested here.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from jobcontract import Backoff, ConfigError, Handlers, JobContext, JobInput


class Embed(JobInput, kind="embed"):
    document_id: int


class Other(JobInput, kind="other"):
    document_id: int


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


def test_a_kind_is_found_by_its_name_with_its_terms(handlers: Handlers) -> None:
    backoff = Backoff(base=timedelta(seconds=5))

    @handlers.handler(
        Embed, lease="2m", timeout=timedelta(minutes=1), max_attempts=3, backoff=backoff, concurrency=4
    )
    def embed(input: Embed, context: JobContext) -> None: ...

    handler = handlers.get("embed")

    assert handler is not None
    assert (handler.function, handler.input_type) == (embed, Embed)
    assert (handler.lease, handler.timeout) == (timedelta(minutes=2), timedelta(minutes=1))
    assert (handler.max_attempts, handler.backoff, handler.concurrency) == (3, backoff, 4)
    assert (handler.takes_context, handler.is_async) == (True, False)
    assert handlers.kinds == ["embed"]
    assert "embed" in handlers
    assert handlers.get("something.else") is None


def test_the_decorated_function_stays_itself(handlers: Handlers) -> None:
    @handlers.handler("double")
    def double(input: dict[str, int]) -> int:
        return 2 * input["n"]

    assert double({"n": 4}) == 8


def test_handlers_of_several_modules_become_one_registry(handlers: Handlers) -> None:
    others = Handlers()

    @handlers.handler("a")
    def a(input: object) -> None: ...

    @others.handler("b")
    def b(input: object) -> None: ...

    handlers.include(others)

    assert handlers.kinds == ["a", "b"]
    with pytest.raises(ConfigError, match="kind 'b' has two handlers"):
        handlers.include(others)


class Callables:
    """Everything that is called with an input, or an input and a context."""

    def method(self, input: Embed) -> None: ...

    async def async_method(self, input: Embed, context: JobContext) -> None: ...

    def __call__(self, input: Embed, context: JobContext) -> None: ...


class AsyncCallable:
    async def __call__(self, input: Embed) -> None: ...


def plain(input: Embed) -> None: ...
def with_context(input: Embed, context: JobContext) -> None: ...
def with_own_default(input: Embed, model: str = "v3") -> None: ...
def with_optional_context(input: Embed, context: JobContext | None = None) -> None: ...
def with_other_name(input: Embed, job: JobContext) -> None: ...
def without_annotations(input, context): ...  # type: ignore[no-untyped-def]  # pyright: ignore
def with_base_class(input: JobInput) -> None: ...
def positional_only(input: Embed, context: JobContext, /) -> None: ...
async def coroutine(input: Embed) -> None: ...


@functools.wraps(with_context)
def wrapped(*arguments: Any, **keywords: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes_context", "is_async"),
    [
        (plain, False, False),
        (with_context, True, False),
        (with_own_default, False, False),
        (with_optional_context, True, False),
        (with_other_name, True, False),
        (without_annotations, True, False),
        (with_base_class, False, False),
        (positional_only, True, False),
        (wrapped, True, False),
        (coroutine, False, True),
        (Callables().method, False, False),
        (Callables().async_method, True, True),
        (Callables(), True, False),
        (AsyncCallable(), False, True),
        (functools.partial(with_optional_context, context=None), False, False),
        (functools.partial(coroutine), False, True),
        (lambda input: input, False, False),
    ],
)
def test_functions_methods_and_objects_are_handlers(
    handlers: Handlers, function: Callable[..., object], takes_context: bool, is_async: bool
) -> None:
    handlers.handler(Embed)(function)

    handler = handlers.get("embed")
    assert handler is not None
    assert (handler.takes_context, handler.is_async) == (takes_context, is_async)


def no_argument() -> None: ...
def three_arguments(input: Embed, context: JobContext, connection: object) -> None: ...
def keyword_argument(input: Embed, *, connection: object) -> None: ...
def only_keywords(**keywords: object) -> None: ...
def anything(*arguments: object) -> None: ...
def other_input(input: Other) -> None: ...
def other_second(input: Embed, context: str) -> None: ...


def generator(input: Embed) -> Iterator[int]:
    yield input.document_id


async def async_generator(input: Embed) -> AsyncIterator[int]:
    yield input.document_id


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (no_argument, r"no_argument must take \(input\) or \(input, context\)"),
        (three_arguments, r"three_arguments must take .*, and takes 3 arguments"),
        (keyword_argument, "a keyword argument that nobody would give"),
        (only_keywords, "only_keywords must take"),
        (anything, "anything must take"),
        (other_input, "other_input takes a Other but is registered for Embed"),
        (other_second, "its second argument is a str"),
        (generator, "is a generator: calling it would run nothing"),
        (async_generator, "is a generator"),
        (5, "can't be called"),
    ],
)
def test_what_can_not_be_a_handler_is_refused_in_one_sentence(
    handlers: Handlers, function: Any, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as refusal:
        handlers.handler(Embed)(function)

    assert "\n" not in str(refusal.value)
    assert len(handlers) == 0


def takes_a_string(input: str) -> None: ...
def takes_a_mapping(input: Mapping) -> None: ...  # type: ignore[type-arg]  # pyright: ignore


def test_a_kind_without_a_typed_input_gives_a_dict(handlers: Handlers) -> None:
    handlers.handler("fine")(takes_a_mapping)

    with pytest.raises(ConfigError, match="takes a str but is registered for the name of a kind"):
        handlers.handler("wrong")(takes_a_string)


def test_a_kind_has_one_handler(handlers: Handlers) -> None:
    handlers.handler(Embed)(plain)

    with pytest.raises(
        ConfigError, match=r"kind 'embed' has two handlers, \S+plain and \S+without_annotations"
    ):
        handlers.handler("embed")(without_annotations)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("", "is not the name of a kind"),
        ("a b", "is not the name of a kind"),
        (plain, "needs a JobInput class or the name of a kind"),
        (None, "needs a JobInput class or the name of a kind"),
        (dict, "needs a JobInput class or the name of a kind"),
        (JobInput, "not JobInput itself"),
    ],
)
def test_what_is_no_kind_is_refused(handlers: Handlers, kind: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        handlers.handler(kind)


@pytest.mark.parametrize(
    ("terms", "name"),
    [
        ({"lease": "soon"}, "lease"),
        ({"lease": timedelta()}, "lease"),
        ({"timeout": "-1s"}, "timeout"),
        ({"timeout": timedelta(seconds=-1)}, "timeout"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"concurrency": 1001}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"backoff": timedelta(seconds=1)}, "backoff"),
    ],
)
def test_a_wrong_term_is_named(handlers: Handlers, terms: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=rf"the handler of 'embed': {name}"):
        handlers.handler(Embed, **terms)
