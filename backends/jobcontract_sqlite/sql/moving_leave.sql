-- Takes out of the moving jobs what the statement before it, in the same transaction, has copied elsewhere.
DELETE FROM jobcontract_moving INDEXED BY jobcontract_moving_id
WHERE id IN (SELECT value FROM json_each(:ids))
