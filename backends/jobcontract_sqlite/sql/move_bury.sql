-- Hidden jobs become tombstones.
UPDATE jobcontract_moving INDEXED BY jobcontract_moving_id
SET state = 'moved'
WHERE id IN (SELECT value FROM json_each(:ids))
    AND state = 'moving' AND was <> 'moving'
