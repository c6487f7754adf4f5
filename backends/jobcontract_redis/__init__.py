"""The Redis driver: jobs in a Redis or Valkey server, a group under Sentinel, or a cluster.

Where a store is
    =====================================================  ===================================================
    ``redis://user:password@host:6379/0``                  one server, database 0
    ``redis+sentinel://:password@host1,host2/service/0``   the primary that the Sentinels name for the service
    ``redis+cluster://:password@host1,host2``              a cluster; any of its nodes will do
    ``rediss``, ``rediss+sentinel``, ``rediss+cluster``    the same with TLS, which verifies the server
    =====================================================  ===================================================

What stands for what
    A queue is a group of keys with one hash tag, ``{namespace:queue}``, and so one slot of a cluster. The
    headers of the files in ``lua/`` say which keys and of which type; each file is one verb on one queue, and
    atomic. A call that concerns several queues runs one script on each of them.

What is promised
    Delivery is at least once, under a timed lease by the server's clock, in milliseconds. Keys are unique for
    as long as the job's record is kept (`retention`, then `prune`). A job is known by its queue and its id:
    the same id in two queues is two jobs. Durability is what the server's settings give, and
    `Capabilities.notes` say so; a failover loses what the replica did not have yet, unless `wait_replicas`
    waits for it. A claim over several queues first looks which of them has the best due jobs, and then claims
    from those: in between, others may have taken them.

What it takes
    Redis 6.2 or newer, or Valkey, with an append-only file and without eviction of any key. A user needs the
    keys ``~{namespace:*``, the commands that the scripts use, and ``+info +config|get`` for true
    capabilities. While a slot moves to another node, pause its queue: a script can't reach the keys that are
    gone already, and `rescue` has to put right what it left.

The client's own retries are off: what was sent is sent again only when the server says that it did not run
it.
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
