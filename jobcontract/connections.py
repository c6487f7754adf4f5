"""The caller's own database connection, whatever library it comes from.

`bind` recognises a connection by the module its class lives in, and imports nothing: an application that has
no Django never loads Django. What comes back runs `Statement`s inside the caller's open transaction, on the
driver connection beneath, and neither begins, commits nor rolls back anything.

=====================================  ======================  ===============
the caller holds                       awaited (`bind_async`)  dialect
=====================================  ======================  ===============
psycopg Connection, AsyncConnection    the Async kind          postgresql
SQLAlchemy Connection, Session         AsyncConnection, -Session   postgresql (psycopg), sqlite
Django connection                      no                      postgresql (psycopg), sqlite
sqlite3.Connection                     no                      sqlite
=====================================  ======================  ===============

Refused, with the reason, before anything is sent: a connection that is closed, whose transaction has failed
already, or that is in autocommit mode without a transaction (the job would commit by itself, apart from the
business row).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, cast

from jobcontract.errors import InvalidJob, JobContractError, StoreError, StoreUnavailable, Unsupported
from jobcontract.side_doors import Dialect, Row, Statement, Steps, Transaction

Result = TypeVar("Result")

TRY_AGAIN = frozenset({"40001", "40P01", "55P03"})
"""PostgreSQL's serialization failure, deadlock and lock timeout: the next transaction may well succeed."""

# The connections below belong to libraries that the core must not import, hence Any: what they are was
# checked by name.
Foreign = Any


class BoundConnection(Transaction, Protocol):
    """A caller's open transaction."""

    @property
    def client(self) -> object:
        """The client library's own connection beneath."""
        ...


class AsyncBoundConnection(Protocol):
    """A caller's open transaction on an asynchronous connection."""

    dialect: Dialect
    client: object
    """As `BoundConnection.client`."""

    async def run(self, statement: Statement) -> list[Row]:
        """As `Transaction.run`, awaited."""
        ...


def run_steps(bound: Transaction, steps: Steps[Result]) -> Result:
    """Drive `steps` to their result on `bound`.

    What a statement raises is thrown into the generator, whose driver may know its meaning; otherwise it
    becomes a `StoreError` with the client's error as its cause.
    """
    try:
        statement = next(steps)
        while True:
            try:
                rows = bound.run(statement)
            except Exception as error:
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        return cast(Result, stop.value)
    except JobContractError:
        raise
    except Exception as error:
        raise _failed_in_callers_transaction(error) from error


async def run_steps_async(bound: AsyncBoundConnection, steps: Steps[Result]) -> Result:
    """`run_steps`, awaited. A twin by necessity: the one await in the middle can't be shared between the
    colours.
    """
    try:
        statement = next(steps)
        while True:
            try:
                rows = await bound.run(statement)
            except Exception as error:
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        return cast(Result, stop.value)
    except JobContractError:
        raise
    except Exception as error:
        raise _failed_in_callers_transaction(error) from error


def bind(connection: object) -> BoundConnection:
    """The open transaction of a synchronous `connection`.

    Raises `InvalidJob` (field ``connection``) when it is closed, has failed or has no transaction,
    `Unsupported` for a kind of connection that can't carry a job. May open SQLAlchemy's or Django's lazy
    connection, and waits for what psycopg's pipeline mode has sent; otherwise does no I/O.
    """
    family = _family(connection)
    if family == "psycopg":
        if _is_async(connection):
            raise _refused("is asynchronous; use the same verb of jobcontract.aio and await it")
        _synchronise(connection)
        _check_psycopg(connection)
        return _DBAPI("postgresql", connection)
    if family == "sqlite3":
        _check_sqlite(connection)
        return _DBAPI("sqlite", connection)
    if family == "sqlalchemy":
        if _is_async(connection):
            raise _refused("is asynchronous; use the same verb of jobcontract.aio and await it")
        return _bind_sqlalchemy(connection)
    if family == "django":
        return _bind_django(connection)
    raise Unsupported(_unknown(connection))


async def bind_async(connection: object) -> AsyncBoundConnection:
    """The open transaction of an asynchronous `connection`. Raises as `bind` does."""
    family = _family(connection)
    if family not in ("psycopg", "sqlalchemy"):
        raise Unsupported(_unknown(connection))
    if not _is_async(connection):
        raise _refused("is synchronous; use the verb of the synchronous Backend")
    if family == "psycopg":
        await _synchronise_async(connection)
        _check_psycopg(connection)
        return _AsyncPsycopg(connection)
    foreign: Foreign = connection
    if hasattr(foreign, "sync_session"):
        foreign = await foreign.connection()
    bound = await foreign.run_sync(_bind_sqlalchemy)  # the checks, on SQLAlchemy's own greenlet
    return _AsyncSQLAlchemy(foreign, bound.client)


class _DBAPI:
    """psycopg's or sqlite3's own connection."""

    def __init__(self, dialect: Dialect, connection: Foreign) -> None:
        self.dialect: Dialect = dialect
        self.client = connection

    def run(self, statement: Statement) -> list[Row]:
        postgres = self.dialect == "postgresql"
        cursor = _psycopg_cursor(self.client) if postgres else self.client.cursor()
        try:
            if not postgres:
                cursor.row_factory = None  # an application may have set one of its own: ours are tuples
            cursor.execute(statement.sql, statement.parameters)
            if postgres:
                _synchronise(self.client)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()


class _AsyncPsycopg:
    """psycopg's AsyncConnection."""

    def __init__(self, connection: Foreign) -> None:
        self.dialect: Dialect = "postgresql"
        self.client = connection

    async def run(self, statement: Statement) -> list[Row]:
        async with _psycopg_cursor(self.client) as cursor:
            await cursor.execute(statement.sql, statement.parameters)
            await _synchronise_async(self.client)
            return list(await cursor.fetchall()) if cursor.description else []


class _AsyncSQLAlchemy:
    """SQLAlchemy's AsyncConnection: the statements run on its greenlet, so that its asynchronous driver is
    awaited for us.
    """

    def __init__(self, connection: Foreign, client: object) -> None:
        self.dialect: Dialect = "postgresql" if connection.dialect.name == "postgresql" else "sqlite"
        self.client = client
        self._connection = connection

    async def run(self, statement: Statement) -> list[Row]:
        return cast("list[Row]", await self._connection.run_sync(_run_on_sqlalchemy, statement))


class _SQLAlchemy:
    """SQLAlchemy's Connection, for dialects whose parameter style is the client's own."""

    def __init__(self, dialect: Dialect, connection: Foreign) -> None:
        self.dialect: Dialect = dialect
        self.client: object = connection.connection.driver_connection
        self._connection = connection

    def run(self, statement: Statement) -> list[Row]:
        return _run_on_sqlalchemy(self._connection, statement)


def _run_on_sqlalchemy(connection: Foreign, statement: Statement) -> list[Row]:
    result = connection.exec_driver_sql(statement.sql, tuple(statement.parameters))
    return [tuple(row) for row in result.fetchall()] if result.returns_rows else []


def _bind_sqlalchemy(connection: Foreign) -> BoundConnection:
    if hasattr(connection, "get_bind"):  # a Session: its connection, which begins its transaction
        if not connection.is_active:
            raise _refused("is a Session whose transaction has failed; roll it back first")
        connection = connection.connection()
    if not hasattr(connection, "in_transaction"):  # an Engine, a Result, ...
        raise Unsupported(_unknown(connection))
    if connection.closed:
        raise _refused("is closed")
    name, client = connection.dialect.name, connection.dialect.driver
    if (name, client) not in (
        ("postgresql", "psycopg"),
        ("postgresql", "psycopg_async"),
    ) and name != "sqlite":
        raise Unsupported(
            f"the connection is SQLAlchemy's {name}+{client}, which can't carry a job; "
            "use postgresql+psycopg or sqlite"
        )
    if not connection.in_transaction():
        connection.begin()  # what any statement on it would do by itself (autobegin)
    if _commits_by_itself(connection):
        raise _refused(_AUTOCOMMIT)
    return _SQLAlchemy("postgresql" if name == "postgresql" else "sqlite", connection)


def _commits_by_itself(connection: Foreign) -> bool:
    """Whether SQLAlchemy's transaction is none at the client: its levels can be set on the engine, on the
    connection and past both of them, and only the client's own connection knows them all.
    """
    client = connection.connection.driver_connection
    if connection.dialect.name == "postgresql":
        return bool(client.autocommit)
    return client.isolation_level is None and not client.in_transaction


def _bind_django(connection: Foreign) -> BoundConnection:
    # django.db.connection is a proxy for the connection of the current thread.
    if connection.vendor not in ("postgresql", "sqlite"):
        raise Unsupported(
            f"the connection is Django's {connection.vendor}, which can't carry a job; "
            "use postgresql or sqlite"
        )
    if not connection.in_atomic_block:
        raise _refused("has no transaction; call it inside `with transaction.atomic():`")
    if connection.needs_rollback:
        raise _refused("has a transaction that must be rolled back; leave its atomic block first")
    connection.ensure_connection()
    client = connection.connection
    if connection.vendor == "sqlite":
        return _DBAPI("sqlite", client)
    if _family(client) != "psycopg":
        raise Unsupported(
            "the connection is Django's over psycopg2, which can't carry a job; install psycopg 3"
        )
    _check_psycopg(client)
    return _DBAPI("postgresql", client)


_AUTOCOMMIT = "is in autocommit mode without a transaction; open one, or leave `connection` out"


def _synchronise(connection: Foreign) -> None:
    """In psycopg's pipeline mode a statement has no result, and a transaction no status, before a sync: what
    looks like an empty answer is one that is still on its way. Leaving a nested block syncs.
    """
    if _is_pipelined(connection):
        with connection.pipeline():
            pass


async def _synchronise_async(connection: Foreign) -> None:
    if _is_pipelined(connection):
        async with connection.pipeline():
            pass


def _is_pipelined(connection: Foreign) -> bool:
    return not connection.closed and connection.pgconn.pipeline_status != 0


def _check_psycopg(connection: Foreign) -> None:
    if connection.closed:
        raise _refused("is closed")
    status = connection.info.transaction_status.name
    if status == "INERROR":
        raise _refused("has a transaction that failed already; roll it back first")
    if status == "IDLE" and connection.autocommit:
        raise _refused(_AUTOCOMMIT)


def _check_sqlite(connection: Foreign) -> None:
    try:
        in_transaction = connection.in_transaction
        autocommit = connection.isolation_level is None and not in_transaction
        connection.total_changes  # noqa: B018 - raises on a closed connection
    except Exception as error:
        raise _refused(f"can't be used: {error}") from None
    if autocommit or (not in_transaction and getattr(connection, "autocommit", -1) is True):
        raise _refused(_AUTOCOMMIT)


def _psycopg_cursor(connection: Foreign) -> Foreign:
    """A cursor that reads ``%s`` and gives tuples, whatever the factories that the application has set."""
    factories = connection.cursor_factory.__mro__
    if any(each.__name__ == "RawCursorMixin" for each in factories):  # it reads $1 instead
        plain = next(each for each in factories if each.__name__ in ("Cursor", "AsyncCursor"))
        cursor = plain(connection)
    else:
        cursor = connection.cursor()
    cursor.row_factory = _psycopg_tuples
    return cursor


def _psycopg_tuples(cursor: object) -> Any:
    """A psycopg row factory that makes plain tuples."""
    del cursor
    return tuple


def _family(connection: object) -> str:
    """The library that `connection` comes from, by its class and the classes above it: an application may
    subclass them. "" for what is no connection, such as a cursor or an engine.
    """
    if not hasattr(connection, "commit"):
        return ""
    for ancestor in type(connection).__mro__:
        package = ancestor.__module__.partition(".")[0]
        if package in ("psycopg", "sqlite3", "sqlalchemy", "django"):
            return package
    return ""


def _is_async(connection: object) -> bool:
    return any(ancestor.__name__.startswith(("Async", "async_")) for ancestor in type(connection).__mro__)


def _unknown(connection: object) -> str:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return f"a {kind} can't carry a job; pass a psycopg 3, SQLAlchemy, Django or sqlite3 connection"


def _refused(reason: str) -> InvalidJob:
    return InvalidJob("connection", reason)


def _failed_in_callers_transaction(error: Exception) -> StoreError:
    # SQLAlchemy's text repeats the statement and its parameters, payload and all; the client's own error does
    # not.
    client: object = getattr(error, "orig", None) or error
    said = f"the job could not be written in the caller's transaction: {type(client).__name__}: {client}"
    if getattr(client, "sqlstate", None) in TRY_AGAIN:
        return StoreUnavailable(f"{said}; roll back and run the transaction again")
    return StoreError(said)
