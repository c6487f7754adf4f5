CREATE TABLE jobcontract_schema (
    version          INTEGER NOT NULL PRIMARY KEY,
    installed_at     TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;

-- The store's clock: microseconds since 1970, UTC. One definition for every statement, also for those that run on a
-- caller's connection. SQLite measures milliseconds, and gives one statement one instant.
CREATE VIEW jobcontract_clock (now) AS
SELECT CAST(julianday('now') * 86400000 - 210866760000000 + 0.5 AS INTEGER) * 1000;

-- Jobs that are not finished: what finishes leaves this table in the same transaction.
-- The wide columns stand last, so that reading the others follows no overflow page. Ids hold nothing that could change
-- on its way through the JSON that statements take.
CREATE TABLE jobcontract_jobs (
    id               TEXT    NOT NULL CHECK (id NOT GLOB '*[^0-9a-f-]*'),
    queue            TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    run_at           INTEGER NOT NULL,
    state            TEXT    NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'running', 'moving')),
    attempt          INTEGER NOT NULL DEFAULT 0,  -- the fencing number: + 1 at every claim, never decreased
    refunded         INTEGER NOT NULL DEFAULT 0,  -- how many of the attempts do not count against max_attempts
    max_attempts     INTEGER NOT NULL,
    token            TEXT,
    lease_until      INTEGER,
    created_at       INTEGER NOT NULL,
    idempotency_key  TEXT,
    last_error       TEXT,
    headers          TEXT,
    input_ref        TEXT    NOT NULL,
    CHECK ((state = 'running') = (token IS NOT NULL AND lease_until IS NOT NULL)),
    -- One edited row must not fail each claim of its queue with an overflow.
    CHECK (attempt BETWEEN 0 AND 1000000000 AND refunded BETWEEN 0 AND attempt)
) STRICT;

-- Statements name the index that they need (INDEXED BY): statistics that were gathered while the queue was empty would
-- make the planner read a backlog from end to end.
CREATE UNIQUE INDEX jobcontract_jobs_id ON jobcontract_jobs (id);
-- One probe per priority is one exact range of this index: future jobs of a better priority cost nothing.
CREATE INDEX jobcontract_jobs_ready ON jobcontract_jobs (queue, priority DESC, run_at, id) WHERE state = 'ready';
CREATE INDEX jobcontract_jobs_running ON jobcontract_jobs (lease_until) WHERE state = 'running';

CREATE TABLE jobcontract_done (
    id               TEXT    NOT NULL CHECK (id NOT GLOB '*[^0-9a-f-]*'),
    queue            TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    priority         INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    state            TEXT    AS ('done'),
    attempt          INTEGER NOT NULL,
    refunded         INTEGER NOT NULL,
    max_attempts     INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    finished_at      INTEGER NOT NULL,
    idempotency_key  TEXT,
    last_error       TEXT,
    headers          TEXT,
    input_ref        TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX jobcontract_done_id ON jobcontract_done (id);
CREATE INDEX jobcontract_done_finished ON jobcontract_done (finished_at);
CREATE INDEX jobcontract_done_queue ON jobcontract_done (queue, id);
CREATE INDEX jobcontract_done_kind ON jobcontract_done (kind, id);

-- Dead and cancelled jobs: what an operator may send back to ready.
CREATE TABLE jobcontract_dead (
    id               TEXT    NOT NULL CHECK (id NOT GLOB '*[^0-9a-f-]*'),
    queue            TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    priority         INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN ('dead', 'cancelled')),
    attempt          INTEGER NOT NULL,
    refunded         INTEGER NOT NULL,
    max_attempts     INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    finished_at      INTEGER NOT NULL,
    idempotency_key  TEXT,
    last_error       TEXT,
    headers          TEXT,
    input_ref        TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX jobcontract_dead_id ON jobcontract_dead (id);
CREATE INDEX jobcontract_dead_finished ON jobcontract_dead (state, finished_at);
CREATE INDEX jobcontract_dead_queue ON jobcontract_dead (queue, id);
CREATE INDEX jobcontract_dead_kind ON jobcontract_dead (kind, id);

-- Who holds an idempotency key, for as long as the holder's record lives, whichever table it is in.
CREATE TABLE jobcontract_keys (
    idempotency_key  TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    job_id           TEXT    NOT NULL,
    fingerprint      TEXT    NOT NULL,
    PRIMARY KEY (idempotency_key, queue)
) STRICT, WITHOUT ROWID;

-- For the copy of the keys to another store, job by job.
CREATE INDEX jobcontract_keys_job ON jobcontract_keys (job_id);

-- Only queues about which there is something to say.
CREATE TABLE jobcontract_queues (
    name             TEXT    NOT NULL PRIMARY KEY,
    paused           INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- What the store lets in while its jobs move to another one, and since which step of the migration. One row.
CREATE TABLE jobcontract_gate (
    epoch            INTEGER NOT NULL DEFAULT 0,
    intake           INTEGER NOT NULL DEFAULT 1,  -- whether jobs can be registered
    claims           INTEGER NOT NULL DEFAULT 1   -- whether jobs can be claimed
) STRICT;

INSERT INTO jobcontract_gate DEFAULT VALUES;

-- Jobs that are hidden because they move to another store (moving), those that have (moved), and placeholders of jobs
-- that will come or have a key here (moving, and was 'moving' too).
CREATE TABLE jobcontract_moving (
    id               TEXT    NOT NULL CHECK (id NOT GLOB '*[^0-9a-f-]*'),
    queue            TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    priority         INTEGER NOT NULL,
    run_at           INTEGER NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN ('moving', 'moved')),
    was              TEXT    NOT NULL CHECK (was IN ('ready', 'dead', 'cancelled', 'moving')),
    attempt          INTEGER NOT NULL,
    refunded         INTEGER NOT NULL,
    max_attempts     INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    finished_at      INTEGER,
    idempotency_key  TEXT,
    last_error       TEXT,
    headers          TEXT,
    input_ref        TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX jobcontract_moving_id ON jobcontract_moving (id);
-- As small as the batch that is under way.
CREATE INDEX jobcontract_moving_hidden ON jobcontract_moving (id) WHERE state = 'moving' AND was <> 'moving';
CREATE INDEX jobcontract_moving_buried ON jobcontract_moving (id) WHERE state = 'moved';

-- Every job, for people with a shell. No statement of ours joins it: that would read all of it.
CREATE VIEW jobcontract_all_jobs AS
SELECT
    id, queue, kind, state, priority, run_at, attempt, refunded, max_attempts, created_at, lease_until,
    NULL AS finished_at, idempotency_key, last_error, headers, input_ref
FROM jobcontract_jobs
UNION ALL
SELECT
    id, queue, kind, state, priority, run_at, attempt, refunded, max_attempts, created_at, NULL,
    finished_at, idempotency_key, last_error, headers, input_ref
FROM jobcontract_done
UNION ALL
SELECT
    id, queue, kind, state, priority, run_at, attempt, refunded, max_attempts, created_at, NULL,
    finished_at, idempotency_key, last_error, headers, input_ref
FROM jobcontract_dead
UNION ALL
SELECT
    id, queue, kind, state, priority, run_at, attempt, refunded, max_attempts, created_at, NULL,
    finished_at, idempotency_key, last_error, headers, input_ref
FROM jobcontract_moving;

-- What `jobcontract.once` remembers when the application's own tables are in this file too.
CREATE TABLE IF NOT EXISTS jobcontract_effects (
    queue            TEXT    NOT NULL,
    effect_key       TEXT    NOT NULL,
    recorded_at      INTEGER NOT NULL
        DEFAULT (CAST(julianday('now') * 86400000 - 210866760000000 + 0.5 AS INTEGER) * 1000),
    PRIMARY KEY (queue, effect_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS jobcontract_effects_recorded_at ON jobcontract_effects (recorded_at);
