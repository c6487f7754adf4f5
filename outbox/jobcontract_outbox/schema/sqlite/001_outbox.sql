-- Jobs on their way to another store. A row leaves the table when its target has confirmed the job.
-- Instants are microseconds since 1970, UTC; the view jobcontract_clock of the store tells now.
CREATE TABLE {outbox} (
    seq           INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    target        TEXT    NOT NULL,
    job_id        TEXT    NOT NULL UNIQUE,
    queue         TEXT    NOT NULL,
    ordering_key  TEXT,
    attempts      INTEGER NOT NULL DEFAULT 0,  -- how often the target refused this job; a target that is away costs none
    due_at        INTEGER NOT NULL,            -- when it was, or will be, due first
    available_at  INTEGER NOT NULL,            -- when it is tried next
    lease_until   INTEGER NOT NULL DEFAULT 0,  -- until then it belongs to the relay that holds the token
    lease_token   TEXT,
    parked_at     INTEGER,
    created_at    INTEGER NOT NULL,
    last_error    TEXT,
    envelope      TEXT    NOT NULL
) STRICT;

-- What one target takes now is one range of this index: rows of other targets, future ones and parked ones cost nothing.
CREATE INDEX {outbox}_due ON {outbox} (target, available_at, seq) WHERE parked_at IS NULL AND ordering_key IS NULL;
-- Jobs with an ordering key go one key at a time, in this order. Parked ones stay: they hold up what is behind them.
CREATE INDEX {outbox}_lanes ON {outbox} (target, ordering_key, seq) WHERE ordering_key IS NOT NULL;
-- What waits though it was due: the age of the oldest is what the health check looks at.
CREATE INDEX {outbox}_waiting ON {outbox} (target, due_at)
    WHERE parked_at IS NULL AND (ordering_key IS NOT NULL OR attempts > 0);
CREATE INDEX {outbox}_parked ON {outbox} (target, parked_at) WHERE parked_at IS NOT NULL;

-- Every job that was registered through the outbox, until the retention is over: a duplicate is answered from here,
-- before and after the job was published.
CREATE TABLE {outbox_jobs} (
    job_id           TEXT    NOT NULL PRIMARY KEY,
    created_at       INTEGER NOT NULL,
    cancelled_at     INTEGER,
    target           TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    idempotency_key  TEXT,
    fingerprint      TEXT
) STRICT;
CREATE UNIQUE INDEX {outbox_jobs}_key ON {outbox_jobs} (target, queue, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

-- What a target could do when it was seen last, so that jobs can be checked and registered while it is away.
CREATE TABLE {outbox_targets} (
    target        TEXT    NOT NULL PRIMARY KEY,
    capabilities  TEXT    NOT NULL,
    seen_at       INTEGER NOT NULL
) STRICT;
