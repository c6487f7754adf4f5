"""PostgreSQL (13 and later) as a store of jobs, inside the database that an application already has.

Mapping of terms
================

Everything is in one schema of its own, ``jobcontract`` unless the option `schema` names another:

==================  ==========================================================================================
``live_jobs``       jobs that are ready or running. A claim is an UPDATE of rows that SKIP LOCKED picked; the
                    lease is `token` and `lease_until`; `attempt` only grows, `refunded` counts claims that do
                    not count
``done_jobs``       the history, a partition for each UTC day; a completion moves the row here
``dead_jobs``       dead and cancelled jobs: those that a person can requeue
``job_keys``        a row for each idempotency key, for as long as the job's record lives
``queues``          which queues are paused
``effects``         what `once` has seen
``moving_jobs``     jobs on their way to another store, and the traces of those that went
``gate``            a sequence that says whether jobs can be registered and claimed: see `jobctl migrate`
``schema_version``  the migrations that were applied
``jobs``            a view of all jobs, for people
==================  ==========================================================================================

A priority is a range of the index of ready jobs; a claim probes all ten of them. Waking is LISTEN and NOTIFY.

URL and options
===============

``postgresql://user:password@host:port/database``, several hosts separated by commas; what is left out comes
from libpq (``PGHOST``, ``PGPASSFILE``, a service file). The options (`PostgresOptions`) are keys of the
backend's table or parameters of the URL: the schema, the size of the pool, the timeout of a call, the
retention, and libpq's own for TLS.

A server on another machine must prove who it is: ``sslmode`` is ``verify-full`` there unless it is set, with
the system's certificates unless ``sslrootcert`` is. A connection in plain text over a network warns.

Delivery semantics
==================

A registration is durable when it returns, as `synchronous_commit` and `fsync` of the live server say; the
capabilities declare a window where they are off. `register(connection=...)` writes the job in the caller's
transaction. A job without a run_at is due from the start of the statement that registers it, not of its
transaction. A key is held until its job is pruned or past the retention; a transaction that registers a taken
key waits for the end of the one that holds it.

A repeated registration of a job that has ended is recognised, also while it is ending. One gap is left:
under REPEATABLE READ, when the first registration was itself not committed yet when the snapshot was taken,
and the job has no key.

Every call ends within `timeout`, also when the server is stopped or the network is silent. What the server
was doing then may still happen.

Behind a pooler in transaction mode (noticed by itself) nothing is prepared, no session is changed, and
waiting workers look every two seconds instead of listening.

What to look at when it hurts
=============================

- Claims get slower with the day: somebody holds an old snapshot, and dead rows pile up. Look for the oldest
  ``backend_xmin`` in ``pg_stat_activity``, for ``pg_prepared_xacts`` and for replication slots. The driver
  keeps most of its rate meanwhile: see low_water.py.
- Commits of the application wait for each other: NOTIFY serialises them. The driver notifies only while a
  worker waits: see listen.py.
- Jobs start a poll interval late: a pooler stands in between; `Capabilities.notes` says so.
- ``done_jobs_rest`` fills: no process with the right to create tables has run `rescue` for days; run
  `jobctl init` daily, or let one worker be of the owner's role.
- The verbs in ``pg_stat_statements`` begin with ``/* jobcontract <verb> */``.
"""

from __future__ import annotations

from jobcontract.config import StoreSettings
from jobcontract_postgres.driver import PostgresDriver
from jobcontract_postgres.options import PostgresOptions

__all__ = ["PostgresDriver", "PostgresOptions", "open_driver"]


def open_driver(settings: StoreSettings) -> PostgresDriver:
    """The driver for `settings`. Contacts nothing. Raises `ConfigError` for a bad option."""
    return PostgresDriver(settings)
