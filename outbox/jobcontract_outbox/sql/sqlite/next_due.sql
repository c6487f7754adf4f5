-- In how many seconds the next job of a target is due; null: none waits. Parameter: target, twice.
SELECT min(seconds) FROM (
    SELECT * FROM (
        SELECT (available_at - (SELECT now FROM jobcontract_clock)) / 1e6 AS seconds
        FROM {outbox}
        WHERE target = ? AND parked_at IS NULL AND ordering_key IS NULL
        ORDER BY available_at, seq
        LIMIT 1
    )
    UNION ALL
    SELECT * FROM (
        SELECT (available_at - (SELECT now FROM jobcontract_clock)) / 1e6
        FROM {outbox}
        WHERE target = ? AND parked_at IS NULL AND (ordering_key IS NOT NULL OR attempts > 0)
        ORDER BY due_at
        LIMIT 1
    )
)
