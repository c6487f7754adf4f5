UPDATE {slots}
SET held_until = julianday('now') * 86400 - 210866760000 + ?
WHERE (job_id, token) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))
  AND held_until > julianday('now') * 86400 - 210866760000
RETURNING job_id
