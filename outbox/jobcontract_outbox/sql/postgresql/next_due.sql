-- In how many seconds the next job of a target is due; no row: none waits. Parameter: target, twice.
-- What is due already, and was not taken, is held up or another relay's, and so is no reason to look again. The first
-- branch begins behind it, and so behind the dead entries of what was published.
SELECT min(seconds) FROM (
    (
        SELECT extract(epoch FROM available_at - clock_timestamp())::float8 AS seconds
        FROM {outbox}
        WHERE target = %s AND parked_at IS NULL AND ordering_key IS NULL
          AND available_at > statement_timestamp()
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
