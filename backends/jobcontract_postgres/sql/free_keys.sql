-- Frees the keys of jobs in a partition of the history that is about to be dropped, a batch of them: (how many jobs were seen,
-- the last of them). The jobs themselves stay, and vanish at once with the partition.
-- Parameters: last id of the batch before; how many.
WITH batch AS MATERIALIZED (
    SELECT id, queue, idempotency_key FROM {schema}.{history} WHERE id > %s::uuid ORDER BY id LIMIT %s
), freed AS (
    DELETE FROM {schema}.job_keys
    USING batch
    WHERE job_keys.idempotency_key = batch.idempotency_key
      AND job_keys.queue = batch.queue
      AND job_keys.job_id = batch.id
)
SELECT count(*), (SELECT id::text FROM batch ORDER BY id DESC LIMIT 1) FROM batch
