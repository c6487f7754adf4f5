-- Counts an attempt that the target refused: the row is tried again later, or parked.
-- Parameters: most attempts; token; JSON: an array of [seq, reason, delay in seconds].
UPDATE {outbox}
SET attempts = attempts + 1,
    last_error = json_extract(refused.value, '$[1]'),
    available_at = (SELECT now FROM jobcontract_clock) + CAST(json_extract(refused.value, '$[2]') * 1000000 AS INTEGER),
    parked_at = CASE WHEN attempts + 1 >= ?1 THEN (SELECT now FROM jobcontract_clock) END
FROM json_each(?3) AS refused
WHERE seq = json_extract(refused.value, '$[0]') AND lease_token = ?2
RETURNING job_id, parked_at IS NOT NULL
