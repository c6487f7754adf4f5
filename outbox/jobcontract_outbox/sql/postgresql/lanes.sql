-- The next ordering keys of one target that have rows, and of each the first row: key, seq, whether it may go now.
-- One probe of the index per key, however many rows a key has. Parameters: target; the key to begin behind; target; limit.
WITH RECURSIVE lane AS (
    (
        SELECT ordering_key, seq, parked_at, available_at
        FROM {outbox}
        WHERE target = %s AND ordering_key > %s
        ORDER BY ordering_key, seq
        LIMIT 1
    )
    UNION ALL
    SELECT next.*
    FROM lane
    CROSS JOIN LATERAL (
        SELECT ordering_key, seq, parked_at, available_at
        FROM {outbox}
        WHERE target = %s AND ordering_key > lane.ordering_key
        ORDER BY ordering_key, seq
        LIMIT 1
    ) AS next
)
SELECT ordering_key, seq, parked_at IS NULL AND available_at <= statement_timestamp() FROM lane LIMIT %s
