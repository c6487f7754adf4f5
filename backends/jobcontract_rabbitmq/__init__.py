"""RabbitMQ as a store of jobs.

Terms: a job is a persistent message in a quorum queue, its envelope the body, its history the headers; a
queue and a priority are one RabbitMQ queue; a claim is an unacknowledged delivery; a lease is the connection;
a retry is a message on its way through the delays; the dead are in a queue of their own. See `topology`,
`message`.

URLs: ``amqp://user:password@host:5672/vhost`` and ``amqps://...``, several hosts separated by commas, tried
in that order. The virtual host is percent-encoded (``%2F`` in its name); none at all is ``/``. Options
(`RabbitOptions`) stand in ``[backends.NAME]`` or behind a ``?``. `queues` names what `jobctl init` creates,
which is the only one who needs the right to configure; a producer needs to write to ``jobcontract.v1.ready``,
a worker to read and write ``jobcontract.v1.*``. A job for another queue is an error, and so is one for a
queue that was deleted.

Promises: at least once. What was registered is on the disks of a majority of the nodes. A worker that dies,
or is cut off, loses its jobs to others at once, and each of them one attempt, which a job that was only
fetched ahead may not have been run for; one that is stopped gives everything back unspent. At most as much is
fetched ahead as was asked for, and what is not claimed within a quarter of a second goes back. A job can be
held for the server's ``consumer_timeout``, 30 minutes unless both are told otherwise. Retries come back after
whole seconds. There is no deduplication, no scheduling, no looking up and no cancelling: the outbox has the
first two, and of the dead alone `jobctl dead` knows.

When it hurts: ``rabbitmqctl list_queues name messages_ready messages_unacknowledged consumers`` shows queues
and what is held; ``rabbitmq-diagnostics check_alarms`` why registering fails with "short of something"; an
"unroutable" job wants `jobctl init`; a job that always comes again after half an hour wants a longer
``consumer_timeout``.
"""

from __future__ import annotations

from jobcontract.config import StoreSettings
from jobcontract_rabbitmq.driver import RabbitDriver
from jobcontract_rabbitmq.options import RabbitOptions

__all__ = ["RabbitDriver", "RabbitOptions", "open_driver"]


def open_driver(settings: StoreSettings) -> RabbitDriver:
    """The driver for `settings`. Contacts nothing. Raises `ConfigError` for a bad URL or option."""
    return RabbitDriver(settings)
