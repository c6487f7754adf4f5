-- In how many seconds the next job of a target is due; no row: none waits. Parameter: target, twice.
SELECT min(seconds) FROM (
    (
        SELECT extract(epoch FROM available_at - clock_timestamp())::float8 AS seconds
        FROM {outbox}
        WHERE target = %s AND parked_at IS NULL AND ordering_key IS NULL
        ORDER BY available_at, seq
        LIMIT 1
    )
    UNION ALL
    (
        SELECT extract(epoch FROM available_at - clock_timestamp())::float8
        FROM {outbox}
        WHERE target = %s AND parked_at IS NULL AND (ordering_key IS NOT NULL OR attempts > 0)
        ORDER BY due_at
        LIMIT 1
    )
) AS head
