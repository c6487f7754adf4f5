-- Jobs that wait or run. Finished ones leave at once, so that this table stays as small as the work that is left.
-- The fill factor leaves room for a renewal of the lease on the same page: lease_until is in no index.
CREATE TABLE {schema}.live_jobs (
    id               uuid        NOT NULL,
    run_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    lease_until      timestamptz,
    token            uuid,
    attempt          integer     NOT NULL DEFAULT 0,
    refunded         integer     NOT NULL DEFAULT 0,
    max_attempts     integer     NOT NULL,
    priority         smallint    NOT NULL,
    state            text        NOT NULL DEFAULT 'ready',
    queue            text        NOT NULL,
    kind             text        NOT NULL,
    idempotency_key  text,
    last_error       text,
    headers          json,
    input_ref        json        NOT NULL,
    CONSTRAINT live_jobs_pkey PRIMARY KEY (id),
    CONSTRAINT live_jobs_state CHECK (state IN ('ready', 'running', 'moving')),
    CONSTRAINT live_jobs_lease CHECK (
        (state = 'running') = (token IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)
    ),
    -- One edited row must not fail each claim of its queue with an overflow, nor stay where no claim looks.
    CONSTRAINT live_jobs_numbers CHECK (
        priority BETWEEN 0 AND 9 AND attempt BETWEEN 0 AND 1000000000 AND refunded BETWEEN 0 AND attempt
    ),
    -- An infinite timestamp can't be fetched by a client: one such row would spoil every batch it is in.
    CONSTRAINT live_jobs_instants CHECK (
        isfinite(run_at) AND isfinite(created_at) AND (lease_until IS NULL OR isfinite(lease_until))
        AND run_at < '3000-01-01 00:00:00+00' AND run_at >= '1970-01-01 00:00:00+00'
    )
) WITH (
    fillfactor = 75,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 2000,
    autovacuum_vacuum_cost_delay = 1
);

COMMENT ON TABLE {schema}.live_jobs IS 'jobcontract: jobs that are ready or running';
COMMENT ON COLUMN {schema}.live_jobs.attempt IS 'grows by one with every claim and never falls: a fencing number';
COMMENT ON COLUMN {schema}.live_jobs.refunded IS 'claims that do not count; dead when attempt - refunded >= max_attempts';
COMMENT ON COLUMN {schema}.live_jobs.token IS 'random per claim; whoever settles the job must present it';

-- The claim reads exact ranges of this index, one per queue and priority.
CREATE INDEX live_jobs_ready ON {schema}.live_jobs (queue, priority DESC, run_at, id) WHERE state = 'ready';
-- The rescue reads all of this one: it is as small as what runs now.
CREATE INDEX live_jobs_running ON {schema}.live_jobs (id) WHERE state = 'running';

-- Jobs that need a person: dead, or cancelled by one. Each can be requeued.
CREATE TABLE {schema}.dead_jobs (
    id               uuid        NOT NULL,
    run_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    finished_at      timestamptz NOT NULL,
    attempt          integer     NOT NULL,
    refunded         integer     NOT NULL,
    max_attempts     integer     NOT NULL,
    priority         smallint    NOT NULL,
    state            text        NOT NULL,
    queue            text        NOT NULL,
    kind             text        NOT NULL,
    idempotency_key  text,
    last_error       text,
    headers          json,
    input_ref        json        NOT NULL,
    CONSTRAINT dead_jobs_pkey PRIMARY KEY (id),
    CONSTRAINT dead_jobs_state CHECK (state IN ('dead', 'cancelled'))
);

COMMENT ON TABLE {schema}.dead_jobs IS 'jobcontract: jobs that are dead or cancelled';

-- The history, one partition per UTC day of the end: dropping a day gives its space back at once.
CREATE TABLE {schema}.done_jobs (
    id               uuid        NOT NULL,
    run_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    finished_at      timestamptz NOT NULL,
    attempt          integer     NOT NULL,
    max_attempts     integer     NOT NULL,
    priority         smallint    NOT NULL,
    queue            text        NOT NULL,
    kind             text        NOT NULL,
    idempotency_key  text,
    last_error       text,
    headers          json,
    input_ref        json        NOT NULL
) PARTITION BY RANGE (finished_at);

COMMENT ON TABLE {schema}.done_jobs IS 'jobcontract: jobs that are done, by the day on which they ended';

CREATE INDEX done_jobs_id ON {schema}.done_jobs (id);
-- The safety net: a completion must not fail because nobody made today's partition.
CREATE TABLE {schema}.done_jobs_rest PARTITION OF {schema}.done_jobs DEFAULT;

-- Who holds an idempotency key. A unique index can't span the tables above, and looking before inserting races.
-- The key comes first, so that a job can be found by its key alone.
CREATE TABLE {schema}.job_keys (
    queue            text  NOT NULL,
    idempotency_key  text  NOT NULL,
    job_id           uuid  NOT NULL,
    fingerprint      bytea NOT NULL,
    CONSTRAINT job_keys_pkey PRIMARY KEY (idempotency_key, queue)
);

-- For the copy of the keys to another store, job by job.
CREATE INDEX job_keys_job ON {schema}.job_keys (job_id);

COMMENT ON TABLE {schema}.job_keys IS 'jobcontract: a row per idempotency key, for as long as the job''s record lives';

-- Only queues about which there is something to say.
CREATE TABLE {schema}.queues (
    name    text    NOT NULL,
    paused  boolean NOT NULL DEFAULT false,
    CONSTRAINT queues_pkey PRIMARY KEY (name)
);

-- What once() has seen: written in the application's own transaction, beside the result it guards. The same table that
-- jobcontract.effects makes in an application's own database, and which may have been made here first.
CREATE TABLE IF NOT EXISTS {schema}.effects (
    queue        text        NOT NULL,
    effect_key   text        NOT NULL,
    recorded_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue, effect_key)
);
CREATE INDEX IF NOT EXISTS effects_recorded_at ON {schema}.effects (recorded_at);

COMMENT ON TABLE {schema}.effects IS 'jobcontract: results that were written once';

-- What the store lets in while its jobs move to another one: epoch * 4 + (2: jobs can be registered) + (1: jobs can be claimed).
-- A sequence, because its value is not a matter of snapshots: a transaction under REPEATABLE READ that began before the store
-- was shut sees that it is shut. No row could tell it, short of an error.
CREATE SEQUENCE {schema}.gate AS bigint MINVALUE 0 START 3;
-- Whoever registers or claims reads it; what it says is no secret to those who may use the schema.
GRANT SELECT ON SEQUENCE {schema}.gate TO PUBLIC;

COMMENT ON SEQUENCE {schema}.gate IS 'jobcontract: whether jobs can be registered and claimed (epoch * 4 + 2 + 1)';

-- Jobs that are hidden because they move to another store (moving), those that have (moved), and placeholders of jobs that
-- will come or have a key here (moving, and was 'moving' too).
CREATE TABLE {schema}.moving_jobs (
    id               uuid        NOT NULL,
    run_at           timestamptz NOT NULL,
    created_at       timestamptz NOT NULL,
    finished_at      timestamptz,
    attempt          integer     NOT NULL,
    refunded         integer     NOT NULL,
    max_attempts     integer     NOT NULL,
    priority         smallint    NOT NULL,
    state            text        NOT NULL,
    was              text        NOT NULL,
    queue            text        NOT NULL,
    kind             text        NOT NULL,
    idempotency_key  text,
    last_error       text,
    headers          json,
    input_ref        json        NOT NULL,
    CONSTRAINT moving_jobs_pkey PRIMARY KEY (id),
    CONSTRAINT moving_jobs_state CHECK (state IN ('moving', 'moved')),
    CONSTRAINT moving_jobs_was CHECK (was IN ('ready', 'dead', 'cancelled', 'moving'))
);

COMMENT ON TABLE {schema}.moving_jobs IS 'jobcontract: jobs on their way to another store, and the traces of those that went';

-- As small as the batch that is under way.
CREATE INDEX moving_jobs_hidden ON {schema}.moving_jobs (id) WHERE state = 'moving' AND was <> 'moving';

-- All jobs in one place, for people and for the listing.
CREATE VIEW {schema}.jobs AS
    SELECT id, state, queue, kind, priority, run_at, attempt, refunded, max_attempts, idempotency_key, created_at,
           NULL::timestamptz AS finished_at, lease_until, last_error, input_ref, headers
    FROM {schema}.live_jobs
    UNION ALL
    SELECT id, state, queue, kind, priority, run_at, attempt, refunded, max_attempts, idempotency_key, created_at,
           finished_at, NULL::timestamptz, last_error, input_ref, headers
    FROM {schema}.dead_jobs
    UNION ALL
    SELECT id, 'done', queue, kind, priority, run_at, attempt, 0, max_attempts, idempotency_key, created_at,
           finished_at, NULL::timestamptz, last_error, input_ref, headers
    FROM {schema}.done_jobs
    UNION ALL
    SELECT id, state, queue, kind, priority, run_at, attempt, refunded, max_attempts, idempotency_key, created_at,
           finished_at, NULL::timestamptz, last_error, input_ref, headers
    FROM {schema}.moving_jobs;

COMMENT ON VIEW {schema}.jobs IS 'jobcontract: every job, whatever its state';

-- Takes back the jobs of `ids` that were just created although they have already ended, and gives their ids. A registration may be
-- repeated while its job is being settled: the id is then free in live_jobs the moment before it shows up in the history. Only a
-- snapshot taken after the insert tells, and a function that is VOLATILE takes one, within the statement that inserts. A job that is on
-- its way to another store, or went there, has not ended; it must not be created a second time either.
-- None of the jobs can have ended before `since`: older partitions need not be read.
CREATE FUNCTION {schema}.withdraw_ended(ids uuid[], since timestamptz) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $jobcontract$
DECLARE
    withdrawn uuid[];
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.done_jobs WHERE id = ANY (ids) AND finished_at >= since)
       AND NOT EXISTS (SELECT FROM {schema}.dead_jobs WHERE id = ANY (ids))
       AND NOT EXISTS (SELECT FROM {schema}.moving_jobs WHERE id = ANY (ids))
    THEN
        RETURN '{}';
    END IF;
    WITH ended AS MATERIALIZED (
        SELECT id FROM {schema}.done_jobs WHERE id = ANY (ids) AND finished_at >= since
        UNION
        SELECT id FROM {schema}.dead_jobs WHERE id = ANY (ids)
        UNION
        SELECT id FROM {schema}.moving_jobs WHERE id = ANY (ids)
    ), taken_back AS (
        DELETE FROM {schema}.live_jobs
        WHERE id = ANY (ARRAY(SELECT id FROM ended))
        RETURNING id, queue, idempotency_key
    ), freed AS (
        DELETE FROM {schema}.job_keys
        USING taken_back
        WHERE job_keys.queue = taken_back.queue
          AND job_keys.idempotency_key = taken_back.idempotency_key
          AND job_keys.job_id = taken_back.id
    )
    SELECT array_agg(id) INTO withdrawn FROM taken_back;
    RETURN coalesce(withdrawn, '{}');
END
$jobcontract$;
