-- Takes out of the dead table what the statement before it, in the same transaction, has copied elsewhere.
DELETE FROM jobcontract_dead INDEXED BY jobcontract_dead_id
WHERE id IN (SELECT value FROM json_each(:ids))
