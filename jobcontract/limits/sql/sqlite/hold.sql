INSERT INTO {slots} (held_until, name, job_id, token)
SELECT julianday('now') * 86400 - 210866760000 + ?, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(?)
