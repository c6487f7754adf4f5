-- Free the keys that the forgotten jobs (of the statement before, in the same transaction) held.
DELETE FROM jobcontract_keys
WHERE (idempotency_key, queue, job_id) IN (
    SELECT json_extract(value, '$[2]'), json_extract(value, '$[1]'), json_extract(value, '$[0]')
    FROM json_each(:forgotten)
)
