-- The first rows of some ordering keys, in order. Parameters: array of keys; target; rows per key.
SELECT row.*
FROM unnest(%s::text[]) AS lane (ordering_key)
CROSS JOIN LATERAL (
    SELECT seq, job_id::text, queue, ordering_key, envelope, attempts,
           parked_at IS NULL AND available_at <= statement_timestamp(), available_at
    FROM {outbox}
    WHERE target = %s AND ordering_key = lane.ordering_key
    ORDER BY seq
    LIMIT %s
) AS row
