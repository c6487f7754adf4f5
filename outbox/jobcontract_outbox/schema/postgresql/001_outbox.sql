-- Jobs on their way to another store. A row leaves the table when its target has confirmed the job.
CREATE TABLE {outbox} (
    seq           bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target        text        NOT NULL,
    job_id        uuid        NOT NULL UNIQUE,
    queue         text        NOT NULL,
    ordering_key  text,
    attempts      integer     NOT NULL DEFAULT 0,  -- how often the target refused this job; a target that is away costs none
    due_at        timestamptz NOT NULL,            -- when it was, or will be, due first
    available_at  timestamptz NOT NULL,            -- when it is tried next
    parked_at     timestamptz,
    created_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    last_error    text,
    envelope      text        NOT NULL
) WITH (
    -- Rows live for seconds: a vacuum by the share of dead rows would come late after each backlog.
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.5
);

-- What one target takes now is one range of this index: rows of other targets, future ones and parked ones cost nothing.
CREATE INDEX outbox_due ON {outbox} (target, available_at, seq) WHERE parked_at IS NULL AND ordering_key IS NULL;
-- Jobs with an ordering key go one key at a time, in this order. Parked ones stay: they hold up what is behind them.
CREATE INDEX outbox_lanes ON {outbox} (target, ordering_key, seq) WHERE ordering_key IS NOT NULL;
-- What waits though it was due: the age of the oldest is what the health check looks at.
CREATE INDEX outbox_waiting ON {outbox} (target, due_at)
    WHERE parked_at IS NULL AND (ordering_key IS NOT NULL OR attempts > 0);
CREATE INDEX outbox_parked ON {outbox} (target, parked_at) WHERE parked_at IS NOT NULL;

-- Every job that was registered through the outbox, until the retention is over: a duplicate is answered from here,
-- before and after the job was published.
CREATE TABLE {outbox_jobs} (
    job_id           uuid        NOT NULL PRIMARY KEY,
    created_at       timestamptz NOT NULL DEFAULT statement_timestamp(),
    cancelled_at     timestamptz,
    target           text        NOT NULL,
    queue            text        NOT NULL,
    idempotency_key  text,
    fingerprint      bytea
);
CREATE UNIQUE INDEX outbox_jobs_key ON {outbox_jobs} (target, queue, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- What a target could do when it was seen last, so that jobs can be checked and registered while it is away.
CREATE TABLE {outbox_targets} (
    target        text        NOT NULL PRIMARY KEY,
    capabilities  text        NOT NULL,
    seen_at       timestamptz NOT NULL DEFAULT statement_timestamp()
);
