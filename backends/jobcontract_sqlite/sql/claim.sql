-- Probe each queue and priority for its first due jobs, keep the best of all, and lease them.
-- json_each stands for LATERAL here: each probe reads one exact range of the index of ready jobs, and no more than
-- :limit entries of it.
UPDATE jobcontract_jobs INDEXED BY jobcontract_jobs_id
SET
    state = 'running',
    attempt = attempt + 1,
    token = lower(hex(randomblob(16))),
    lease_until = (SELECT now FROM jobcontract_clock) + :lease
WHERE id IN (
    SELECT json_extract(candidate.value, '$[1]')
    FROM json_each(:queues) AS queue
    CROSS JOIN json_each('[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]') AS priority
    CROSS JOIN json_each((
        SELECT json_group_array(json_array(due.run_at, due.id))
        FROM (
            SELECT run_at, id
            FROM jobcontract_jobs INDEXED BY jobcontract_jobs_ready
            WHERE state = 'ready'
                AND queue = queue.value
                AND priority = priority.value
                AND run_at <= (SELECT now FROM jobcontract_clock)
            ORDER BY run_at, id
            LIMIT :limit
        ) AS due
    )) AS candidate
    WHERE NOT EXISTS (SELECT 1 FROM jobcontract_queues WHERE name = queue.value AND paused)
        AND (SELECT claims FROM jobcontract_gate)
    ORDER BY
        priority.value DESC,
        json_extract(candidate.value, '$[0]'),
        json_extract(candidate.value, '$[1]')
    LIMIT :limit
)
RETURNING
    id, queue, token, attempt, lease_until, refunded, kind, priority, run_at, max_attempts, idempotency_key,
    input_ref, headers
