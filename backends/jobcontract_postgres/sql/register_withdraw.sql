-- Takes back what `register` created under the id of a job that has already ended; one row (id) for each.
-- Parameters: ids; the earliest instant at which one of them can have ended; ids.
--
-- A registration may be repeated while its job is being settled: the id is then free in the live table the moment
-- before it shows up in the history. Only a snapshot taken after the insert tells, so this is a statement of its own.
WITH ended AS (
    SELECT id FROM {schema}.done_jobs WHERE id = ANY (%s::uuid[]) AND finished_at >= %s
    UNION ALL
    SELECT id FROM {schema}.dead_jobs WHERE id = ANY (%s::uuid[])
), withdrawn AS (
    DELETE FROM {schema}.live_jobs
    WHERE id = ANY (ARRAY(SELECT id FROM ended))
    RETURNING id, queue, idempotency_key
), freed AS (
    DELETE FROM {schema}.job_keys
    USING withdrawn
    WHERE job_keys.queue = withdrawn.queue
      AND job_keys.idempotency_key = withdrawn.idempotency_key
      AND job_keys.job_id = withdrawn.id
)
SELECT id::text FROM withdrawn
