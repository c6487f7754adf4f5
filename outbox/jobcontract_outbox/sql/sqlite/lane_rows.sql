-- The first rows of one ordering key, in order. Parameters: key; target; rows per key.
SELECT seq, job_id, queue, ordering_key, envelope, attempts,
       parked_at IS NULL AND available_at <= (SELECT now FROM jobcontract_clock)
           AND lease_until <= (SELECT now FROM jobcontract_clock),
       available_at
FROM {outbox}
WHERE target = ?2 AND ordering_key = ?1
ORDER BY seq
LIMIT ?3
