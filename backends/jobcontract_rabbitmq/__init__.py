"""RabbitMQ as a store of jobs: quorum queues, publisher confirms, and a lease that is a connection.

``amqp://user:password@host:5672/vhost``, ``amqps://...``, several hosts separated by commas. A vhost with a
``/`` in its name is percent-encoded; none at all is ``/``.
"""

from __future__ import annotations

from jobcontract.config import StoreSettings
from jobcontract_rabbitmq.driver import RabbitDriver
from jobcontract_rabbitmq.options import RabbitOptions

__all__ = ["RabbitDriver", "RabbitOptions", "open_driver"]


def open_driver(settings: StoreSettings) -> RabbitDriver:
    """The driver for `settings`. Contacts nothing. Raises `ConfigError` for a bad URL or option."""
    return RabbitDriver(settings)
