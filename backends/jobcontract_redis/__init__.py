"""The Redis driver: jobs in a Redis or Valkey server, a group under Sentinel, or a cluster.

=====================================================  =====================================================
``redis://user:password@host:6379/0``                  one server, database 0
``redis+sentinel://:password@host1,host2/service/0``   the primary that the Sentinels name for the service
``redis+cluster://:password@host1,host2``              a cluster; any of its nodes will do
``rediss``, ``rediss+sentinel``, ``rediss+cluster``    the same with TLS, which verifies the server
=====================================================  =====================================================

Delivery is at least once, under a timed lease by the server's clock. A queue lives in one slot; each verb is
one Lua script on each queue it concerns, and is atomic there. The client's own retries are off: a script
whose answer was lost is not sent again.
"""

from __future__ import annotations

from jobcontract.config import StoreSettings
from jobcontract_redis.access import locate
from jobcontract_redis.driver import RedisDriver
from jobcontract_redis.link import open_link
from jobcontract_redis.namespace import Namespace
from jobcontract_redis.options import RedisOptions

__all__ = ["RedisDriver", "RedisOptions", "open_driver"]


def open_driver(settings: StoreSettings) -> RedisDriver:
    """The driver for `settings`. Contacts nothing yet. Raises `ConfigError` for a bad URL or option."""
    options = settings.read_options(RedisOptions)
    return RedisDriver(Namespace(open_link(locate(settings, options), options), options))
