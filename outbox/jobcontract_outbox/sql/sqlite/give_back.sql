-- Ends the lease of what is left. Parameters: token; array of seq as JSON.
UPDATE {outbox} SET lease_token = NULL, lease_until = 0
WHERE lease_token = ?1 AND seq IN (SELECT value FROM json_each(?2))
