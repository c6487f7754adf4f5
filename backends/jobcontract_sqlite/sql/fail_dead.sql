-- Copy to the dead jobs a failure that is permanent, or that spent the last attempt; `leave.sql` then takes it out of
-- the live table. OR REPLACE: a row that somebody put there by hand must not stop the others.
INSERT OR REPLACE INTO jobcontract_dead (
    id, queue, kind, priority, run_at, state, attempt, refunded, max_attempts, created_at, finished_at,
    idempotency_key, last_error, headers, input_ref
)
SELECT
    id, queue, kind, priority, run_at, 'dead', attempt, refunded, max_attempts, created_at, clock.now,
    idempotency_key, :error, headers, input_ref
FROM jobcontract_clock AS clock
CROSS JOIN jobcontract_jobs INDEXED BY jobcontract_jobs_id
WHERE id = :id
    AND token = :token
    AND lease_until > clock.now
    AND (:permanent OR attempt - refunded >= max_attempts)
RETURNING id
