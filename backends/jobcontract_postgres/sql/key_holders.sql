-- Which job holds each of these keys: (position, id).
-- Parameters: arrays of queue, key.
SELECT incoming.position, job_keys.job_id::text
FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS incoming (queue, idempotency_key, position)
JOIN {schema}.job_keys USING (queue, idempotency_key)
