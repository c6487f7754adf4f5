-- Leases rows that were found free in this transaction. Parameters: token; microseconds; array of seq as JSON.
UPDATE {outbox} SET lease_token = ?1, lease_until = (SELECT now FROM jobcontract_clock) + ?2
WHERE seq IN (SELECT value FROM json_each(?3))
