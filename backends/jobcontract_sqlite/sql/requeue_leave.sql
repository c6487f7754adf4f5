-- Second half of a requeue: takes out of the dead table what `requeue.sql`, in the same transaction, copied back.
DELETE FROM jobcontract_dead INDEXED BY jobcontract_dead_id
WHERE id IN (SELECT value FROM json_each(:ids))
