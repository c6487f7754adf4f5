-- Jobs, newest id first.
-- Parameters: four times (cursor, queue (or null), queue, kind (or null), kind, states, limit); limit.
--
-- Each table is read along its index of ids, and no further than the page. A filter that few jobs pass would read all of
-- the history; so it looks at the newest 100,000 of the ended jobs, and no further.
SELECT job.id::text, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref::text, headers::text,
       state, attempt, created_at, finished_at, lease_until, last_error, refunded
FROM (
    (
        SELECT id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers, state, attempt,
               created_at, NULL::timestamptz AS finished_at, lease_until, last_error, refunded
        FROM {schema}.live_jobs
        WHERE id < %s::uuid
          AND (%s::text IS NULL OR queue = %s)
          AND (%s::text IS NULL OR kind = %s)
          AND state = ANY (%s::text[])
        ORDER BY id DESC
        LIMIT %s
    )
    UNION ALL
    (
        SELECT id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers, state, attempt,
               created_at, finished_at, NULL::timestamptz, last_error, refunded
        FROM (SELECT * FROM {schema}.dead_jobs WHERE id < %s::uuid ORDER BY id DESC LIMIT 100000) AS dead
        WHERE (%s::text IS NULL OR queue = %s)
          AND (%s::text IS NULL OR kind = %s)
          AND state = ANY (%s::text[])
        ORDER BY id DESC
        LIMIT %s
    )
    UNION ALL
    (
        SELECT id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers, 'done', attempt,
               created_at, finished_at, NULL::timestamptz, last_error, 0
        FROM (SELECT * FROM {schema}.done_jobs WHERE id < %s::uuid ORDER BY id DESC LIMIT 100000) AS done
        WHERE (%s::text IS NULL OR queue = %s)
          AND (%s::text IS NULL OR kind = %s)
          AND 'done' = ANY (%s::text[])
        ORDER BY id DESC
        LIMIT %s
    )
    UNION ALL
    (
        SELECT id, kind, queue, priority, run_at, max_attempts, idempotency_key, input_ref, headers, state, attempt,
               created_at, finished_at, NULL::timestamptz, last_error, refunded
        FROM (SELECT * FROM {schema}.moving_jobs WHERE id < %s::uuid ORDER BY id DESC LIMIT 100000) AS moving
        WHERE (%s::text IS NULL OR queue = %s)
          AND (%s::text IS NULL OR kind = %s)
          AND state = ANY (%s::text[])
        ORDER BY id DESC
        LIMIT %s
    )
) AS job
ORDER BY job.id DESC
LIMIT %s
