"""What can be set about a Redis store: the keys of its ``[backends.NAME]`` table, and the parameters of its
URL.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, StringConstraints

from jobcontract.config import StoreOptions
from jobcontract.durations import Duration, PositiveDuration

# No brace and no colon: {namespace:queue} must stay one hash tag, and say one thing only.
Namespace = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,64}\z")]


class RedisOptions(StoreOptions):
    """Options of a Redis store."""

    namespace: Namespace = "jobcontract"
    """Every key begins with ``{namespace:``. Two namespaces in one database know nothing of each other."""
    accept_loss: bool = False
    """Work also with a server that loses acknowledged jobs: one that evicts any key, or has no append-only
    file.
    """
    retention: Duration = timedelta(days=1)
    """How long done and cancelled jobs, and their keys, are kept; 0 is for ever. Shorter than with the SQL
    stores, for this history lies in memory. Dead jobs stay until they are pruned.
    """
    wait_replicas: Annotated[int, Field(ge=0, le=16)] = 0
    """How many replicas must have a registration or a claim before it is acknowledged."""
    timeout: PositiveDuration = timedelta(seconds=5)
    """How long connecting, a free connection and an answer of the server may each take."""
    pool_size: Annotated[int, Field(ge=1, le=10_000)] = 32
    """The most connections to one server; `wait` uses connections of its own beside them."""

    tls_ca: Path | None = None
    """File with the certificates that may sign the server's; None: those of the system."""
    tls_cert: Path | None = None
    """File with the client's certificate, where the server asks for one."""
    tls_key: Path | None = None
    """File with the key of `tls_cert`."""
    sentinel_username: str | None = None
    sentinel_password: SecretStr | None = None
    """For the Sentinels themselves; the user and password of the URL are those of the Redis servers."""
