-- Copies were claimed at a broker: the first one of each job is the one that counts. A row (id, home, the copy that counts,
-- whether it is there) for each job that the journal knows. Parameters: the broker; the claims as JSON, pairs of id and copy.
UPDATE {move_journal}
SET copy = CASE
    WHEN home = ?1 THEN coalesce(
        copy, (SELECT json_extract(value, '$[1]') FROM json_each(?2) WHERE json_extract(value, '$[0]') = job_id)
    )
    ELSE copy
END
WHERE job_id IN (SELECT json_extract(value, '$[0]') FROM json_each(?2))
RETURNING job_id, home, copy, arrived
