-- Which of these jobs the store knows, so that they are left as they are: a placeholder or a tombstone gives way to the
-- job itself.
SELECT json_extract(value, '$.id')
FROM json_each(:jobs)
WHERE EXISTS (SELECT 1 FROM jobcontract_jobs INDEXED BY jobcontract_jobs_id WHERE id = json_extract(value, '$.id'))
    OR EXISTS (SELECT 1 FROM jobcontract_done INDEXED BY jobcontract_done_id WHERE id = json_extract(value, '$.id'))
    OR EXISTS (SELECT 1 FROM jobcontract_dead INDEXED BY jobcontract_dead_id WHERE id = json_extract(value, '$.id'))
    OR EXISTS (
        SELECT 1
        FROM jobcontract_moving INDEXED BY jobcontract_moving_id
        WHERE id = json_extract(value, '$.id')
            AND (json_extract(json_each.value, '$.state') = 'moving' OR (state = 'moving' AND was <> 'moving'))
    )
