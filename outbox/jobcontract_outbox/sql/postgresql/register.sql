-- Stores the jobs whose id and key are new to the outbox: one row (id, whether it is due now) for each of them.
-- Parameters: arrays of id, queue, key, fingerprint, ordering key, run_at, envelope; target, twice.
--
-- The ledger is written in the order of queue and key: the insert of a key waits for a transaction that holds it (and
-- goes ahead when that one rolls back), so two batches that share keys must ask for them in one order. The rows get
-- their numbers in the order of the batch.
-- IS TRUE keeps the IN from becoming a join: our own sessions have hash joins switched off, and a nested loop over two
-- batches of 10,000 takes ten seconds.
WITH incoming AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %s::uuid[], %s::text[], %s::text[], %s::bytea[], %s::text[], %s::timestamptz[], %s::text[]
    ) WITH ORDINALITY AS job (id, queue, idempotency_key, fingerprint, ordering_key, run_at, envelope, position)
), known AS (
    INSERT INTO {outbox_jobs} (job_id, target, queue, idempotency_key, fingerprint)
    SELECT id, %s, queue, idempotency_key, fingerprint
    FROM incoming
    ORDER BY queue, coalesce(idempotency_key, id::text), position
    ON CONFLICT DO NOTHING
    RETURNING job_id
), pending AS (
    INSERT INTO {outbox} (target, job_id, queue, ordering_key, due_at, available_at, envelope)
    SELECT %s, id, queue, ordering_key,
           greatest(run_at, statement_timestamp()), greatest(run_at, statement_timestamp()), envelope
    FROM incoming
    WHERE (id IN (SELECT job_id FROM known)) IS TRUE
    ORDER BY position
    RETURNING job_id, available_at
)
SELECT job_id::text, available_at <= statement_timestamp() FROM pending
