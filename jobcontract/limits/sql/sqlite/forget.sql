DELETE FROM {slots}
WHERE job_id IN (SELECT value FROM json_each(?))
   OR (name IN (SELECT value FROM json_each(?)) AND held_until <= julianday('now') * 86400 - 210866760000)
