-- Counts an attempt that the target refused: the row is tried again later, or parked.
-- Parameters: most attempts; arrays of seq, reason, delay in seconds.
UPDATE {outbox} AS row
SET attempts = attempts + 1,
    last_error = refused.reason,
    available_at = statement_timestamp() + make_interval(secs => refused.delay),
    parked_at = CASE WHEN attempts + 1 >= %s THEN statement_timestamp() END
FROM unnest(%s::bigint[], %s::text[], %s::float8[]) AS refused (seq, reason, delay)
WHERE row.seq = refused.seq
RETURNING row.job_id::text, row.parked_at IS NOT NULL
