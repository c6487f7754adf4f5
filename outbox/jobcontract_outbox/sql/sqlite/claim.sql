-- Leases due jobs of one target. Parameters: target; token; microseconds; limit.
UPDATE {outbox} SET lease_token = ?2, lease_until = (SELECT now FROM jobcontract_clock) + ?3
WHERE seq IN (
    SELECT seq
    FROM {outbox} INDEXED BY {outbox}_due
    WHERE target = ?1 AND ordering_key IS NULL AND parked_at IS NULL
        AND available_at <= (SELECT now FROM jobcontract_clock) AND lease_until <= (SELECT now FROM jobcontract_clock)
    ORDER BY available_at, seq
    LIMIT ?4
)
RETURNING seq, job_id, queue, ordering_key, envelope, attempts, true, available_at
