"""The connections that applications hold, each as one small object with the same three moves.

`Caller.begin` opens a transaction and gives what the application would pass as `connection=`; `commit` and
`rollback` end it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast

import django
import django.conf
import django.db
import django.db.transaction
import psycopg
import psycopg.rows
import sqlalchemy
import sqlalchemy.orm

from jobcontract.url import StoreURL

if not django.conf.settings.configured:
    django.conf.settings.configure(USE_TZ=True)


class Caller(ABC):
    """An application with one connection to the database at a URL."""

    def __init__(self, url: str) -> None:
        self.url = StoreURL.parse(url)

    @abstractmethod
    def begin(self) -> Any:
        """Open a transaction; what goes into `connection=`."""

    @abstractmethod
    def commit(self) -> None:
        """Commit it."""

    @abstractmethod
    def rollback(self) -> None:
        """Roll it back."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def path(self) -> str:
        """The file of a SQLite URL."""
        return self.url.path.removeprefix("/")

    def parts(self) -> dict[str, Any]:
        """The parts of a PostgreSQL URL, as psycopg names them."""
        host = self.url.hosts[0]
        return {
            "host": host.name,
            "port": host.port,
            "user": self.url.username,
            "password": self.url.password.get_secret_value() if self.url.password else None,
            "dbname": self.url.path.removeprefix("/"),
        }

    def sqlalchemy_url(self, asynchronous: bool = False) -> sqlalchemy.URL:
        """The same place as SQLAlchemy writes it."""
        if self.url.scheme == "sqlite":
            return sqlalchemy.URL.create("sqlite", database=self.path())
        parts = self.parts()
        return sqlalchemy.URL.create(
            "postgresql+psycopg_async" if asynchronous else "postgresql+psycopg",
            username=parts["user"],
            password=parts["password"],
            host=parts["host"],
            port=parts["port"],
            database=parts["dbname"],
        )


class Psycopg(Caller):
    """psycopg's Connection, in its default mode: the first statement begins the transaction."""

    def begin(self) -> psycopg.Connection[Any]:
        self.connection = psycopg.connect(**self.parts())
        return self.connection

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class PsycopgBlock(Psycopg):
    """psycopg in autocommit mode, inside ``with connection.transaction()``, with factories of its own: for
    rows, and for cursors that read $1 instead of %s.
    """

    def begin(self) -> psycopg.Connection[Any]:
        self.connection = psycopg.connect(**self.parts(), autocommit=True)
        self.connection.row_factory = cast(Any, psycopg.rows.dict_row)  # not the rows its type says
        self.connection.cursor_factory = psycopg.RawCursor
        self.block = contextlib.ExitStack()
        self.block.enter_context(self.connection.transaction())
        return self.connection

    def commit(self) -> None:
        self.block.close()

    def rollback(self) -> None:
        with self.block:
            raise psycopg.Rollback


class PsycopgPipeline(Psycopg):
    """psycopg in pipeline mode, where no statement has an answer before the next sync."""

    def begin(self) -> psycopg.Connection[Any]:
        connection = super().begin()
        self.pipeline = contextlib.ExitStack()
        self.pipeline.enter_context(connection.pipeline())
        connection.execute("SELECT 'sent and not answered yet'")
        return connection

    def close(self) -> None:
        self.pipeline.close()
        super().close()


class SQLite(Caller):
    """sqlite3's Connection with an explicit BEGIN, and a row factory of its own."""

    def begin(self) -> sqlite3.Connection:
        self.connection = sqlite3.connect(self.path(), isolation_level=None)
        self.connection.row_factory = sqlite3.Row
        self.connection.execute("BEGIN IMMEDIATE")
        return self.connection

    def commit(self) -> None:
        self.connection.execute("COMMIT")

    def rollback(self) -> None:
        self.connection.execute("ROLLBACK")

    def close(self) -> None:
        self.connection.close()


class SQLAlchemyConnection(Caller):
    """SQLAlchemy's Connection."""

    def begin(self) -> sqlalchemy.Connection:
        self.engine = sqlalchemy.create_engine(self.sqlalchemy_url())
        self.connection = self.engine.connect()
        return self.connection

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()
        self.engine.dispose()


class SQLAlchemySession(Caller):
    """SQLAlchemy's Session."""

    def begin(self) -> sqlalchemy.orm.Session:
        self.engine = sqlalchemy.create_engine(self.sqlalchemy_url())
        self.session = sqlalchemy.orm.Session(self.engine)
        return self.session

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()

    def close(self) -> None:
        self.session.close()
        self.engine.dispose()


class Django(Caller):
    """Django's connection, inside ``transaction.atomic()``."""

    alias = "caller"

    def open(self) -> Any:
        """The connection without a transaction."""
        if self.url.scheme == "sqlite":
            database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": self.path()}
        else:
            parts = self.parts()
            database = {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts["dbname"],
                "USER": parts["user"],
                "PASSWORD": parts["password"],
                "HOST": parts["host"],
                "PORT": parts["port"],
            }
        # As if the application's settings had named the database when Django started.
        django.db.connections.settings[self.alias] = django.db.connections.configure_settings(
            {"default": database}
        )["default"]
        self.connection = django.db.connections[self.alias]
        return self.connection

    def begin(self) -> Any:
        connection = self.open()
        django.setup()
        self.block = contextlib.ExitStack()
        self.block.enter_context(django.db.transaction.atomic(using=self.alias))
        return connection

    def commit(self) -> None:
        self.block.close()

    def rollback(self) -> None:
        django.db.transaction.set_rollback(True, using=self.alias)
        self.block.close()

    def close(self) -> None:
        self.connection.close()
        del django.db.connections[self.alias]


POSTGRES: tuple[Callable[[str], Caller], ...] = (
    Psycopg,
    PsycopgBlock,
    PsycopgPipeline,
    SQLAlchemyConnection,
    SQLAlchemySession,
    Django,
)
SQLITE: tuple[Callable[[str], Caller], ...] = (SQLite, SQLAlchemyConnection, SQLAlchemySession, Django)
