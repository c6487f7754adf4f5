"""What can be set for a PostgreSQL store: its own options, and those of libpq that are worth passing on."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, SecretStr, StringConstraints

from jobcontract.config import StoreOptions
from jobcontract.durations import Duration, PositiveDuration

Switch = Literal["auto", "on", "off"]
SchemaName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f$]+\z")]


class PostgresOptions(StoreOptions):
    """The keys of ``[backends.NAME]`` beside `url`, and equally the parameters of the URL."""

    schema_name: Annotated[SchemaName, Field(alias="schema")] = "jobcontract"
    """The schema that holds every object of this installation. Quoted wherever it is used; at most 63 bytes.
    """
    pool_size: Annotated[int, Field(ge=1, le=1000)] = 10
    """The most connections that one process holds, beside one for LISTEN."""
    timeout: Annotated[PositiveDuration, Field(le=timedelta(days=1))] = timedelta(seconds=10)
    """The deadline of each call, connecting and waiting for a free connection included. A day at most."""
    max_lifetime: PositiveDuration = timedelta(hours=1)
    """A pooled connection is replaced at this age, so that a moved address or a rotated certificate is
    noticed.
    """
    retention: Annotated[Duration, Field(le=timedelta(days=36_500))] = timedelta(days=14)
    """How long finished jobs and their keys are kept before the housekeeping of `rescue` drops them: up to
    36500 days; 0 is for ever.
    """
    listen: Switch = "auto"
    """Whether `wait` listens for notifications. auto: unless a pooler stands in between."""
    prepared_statements: Switch = "auto"
    """Whether statements are prepared on the server. auto: unless a pooler stands in between."""

    application_name: str = "jobcontract"
    host: str | None = None
    """The directory of the server's Unix socket, which can't be written as the host of a URL."""
    sslmode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = None
    """None: ``verify-full`` for a server elsewhere, libpq's own default (``prefer``) for one on this machine.
    """
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None
    sslpassword: SecretStr | None = None
    channel_binding: Literal["disable", "prefer", "require"] | None = None
    require_auth: str | None = None
    gssencmode: Literal["disable", "prefer", "require"] | None = None
    krbsrvname: str | None = None
    passfile: str | None = None
    target_session_attrs: Literal["any", "read-write", "primary"] | None = None
    load_balance_hosts: Literal["disable", "random"] | None = None
