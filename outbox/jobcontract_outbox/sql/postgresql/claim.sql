-- Takes due jobs of one target, and holds their rows until the transaction ends. What another relay holds is skipped.
-- Parameters: target; the position (available_at, seq) to begin at; limit.
SELECT seq, job_id::text, queue, ordering_key, envelope, attempts, true, available_at
FROM {outbox}
WHERE target = %s AND ordering_key IS NULL AND parked_at IS NULL
  AND available_at <= statement_timestamp() AND (available_at, seq) >= (%s::timestamptz, %s::bigint)
ORDER BY available_at, seq
LIMIT %s
FOR UPDATE SKIP LOCKED
