"""What Redis and its client say when they can't, in our own error tree and in one sentence."""

from __future__ import annotations

import re

import redis
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)

from jobcontract.errors import StoreError, StoreUnavailable

# Redis 6.2 wraps the error of a command inside a script: "ERR Error running script ...: -OOM command not
# allowed ...".
_CODE = re.compile(
    r"(?:^|[\s-])(OOM|READONLY|LOADING|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|MISCONF|NOREPLICAS|BUSY|NOPERM|NOAUTH|WRONGPASS"
    r"|MOVED|ASK)\b"
)
_PASSING = {
    "READONLY": "is a replica just now, and takes no writes",
    "LOADING": "is still loading its data",
    "MASTERDOWN": "is a replica without its primary",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "TRYAGAIN": "is moving these keys to another node",
    "MOVED": "is moving these keys to another node",
    "ASK": "is moving these keys to another node",
    "MISCONF": "refuses writes because it can't save them to disk; see its log",
    "NOREPLICAS": "refuses writes because too few replicas follow it (min-replicas-to-write)",
    "BUSY": "is held up by somebody's long script",
}
_KNOWN: tuple[tuple[type[redis.RedisError], str], ...] = (
    # redis-py cuts the code off the message of these. A kind of another one stands before it.
    (MovedError, "MOVED"),
    (AskError, "ASK"),
    (TryAgainError, "TRYAGAIN"),
    (MasterDownError, "MASTERDOWN"),
    (ClusterDownError, "CLUSTERDOWN"),
    (OutOfMemoryError, "OOM"),
    (ReadOnlyError, "READONLY"),
    (BusyLoadingError, "LOADING"),
    (NoPermissionError, "NOPERM"),
    (AuthenticationError, "NOAUTH"),
)


def code_of(error: redis.RedisError) -> str:
    """Redis' own code for `error`, such as OOM or READONLY; "" for any other."""
    for kind, code in _KNOWN:
        if isinstance(error, kind):
            return code
    found = _CODE.search(str(error))
    return found[1] if found else ""


def store_error(error: redis.RedisError | OSError, where: str) -> StoreError:
    """`error`, met at the server called `where`, as what the contract lets a driver raise."""
    if isinstance(error, (OSError, redis.TimeoutError)):
        return StoreUnavailable(f"{where} did not answer: {_said(error)}")
    code = code_of(error)
    if code == "OOM":
        return StoreUnavailable(
            f"{where} is full (maxmemory) and stores no new job; let workers drain it, prune finished jobs, "
            "or raise maxmemory"
        )
    if code in _PASSING:
        return StoreUnavailable(f"{where} {_PASSING[code]}")
    if code == "NOPERM":
        return StoreError(f"{where} does not permit this user what the queue needs: {_said(error)}")
    if code in ("NOAUTH", "WRONGPASS"):
        return StoreError(f"{where} refuses the user name or password; correct the URL of this backend")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        reason = str(error).partition("certificate verify failed: ")[2].partition(" (_ssl")[0]
        return StoreError(
            f"the certificate of {where} can't be verified ({reason}); "
            "set tls_ca to the file of its authority, and the URL's host to the name in it"
        )
    if isinstance(error, redis.ConnectionError):
        return StoreUnavailable(f"{where} can't be reached: {_said(error)}")
    return StoreError(f"{where} refused a command: {_said(error)}")


def _said(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."
