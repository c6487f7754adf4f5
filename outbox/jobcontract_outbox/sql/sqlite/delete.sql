-- Deletes exactly what was confirmed, also when the lease ran out meanwhile: it was published.
-- Parameter: array of seq as JSON.
DELETE FROM {outbox} WHERE seq IN (SELECT value FROM json_each(?1))
