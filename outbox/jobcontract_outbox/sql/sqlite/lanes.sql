-- The next ordering keys of one target that have rows, and of each the first row: key, seq, whether it may go now.
-- One probe of the index per key, however many rows a key has. Parameters: target; the key to begin behind; limit.
WITH RECURSIVE lane (ordering_key) AS (
    SELECT min(ordering_key) FROM {outbox} WHERE target = ?1 AND ordering_key > ?2
    UNION ALL
    SELECT (SELECT min(ordering_key) FROM {outbox} WHERE target = ?1 AND ordering_key > lane.ordering_key)
    FROM lane
    WHERE lane.ordering_key IS NOT NULL
    LIMIT ?3
)
SELECT row.ordering_key, row.seq,
       row.parked_at IS NULL AND row.available_at <= (SELECT now FROM jobcontract_clock)
           AND row.lease_until <= (SELECT now FROM jobcontract_clock)
FROM lane
JOIN {outbox} AS row ON row.seq = (
    SELECT min(seq) FROM {outbox} WHERE target = ?1 AND ordering_key = lane.ordering_key
)
WHERE lane.ordering_key IS NOT NULL
ORDER BY row.ordering_key
