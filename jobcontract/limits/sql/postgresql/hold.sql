-- Parameters: seconds; arrays of names, job ids, tokens.
INSERT INTO {slots} (name, job_id, token, held_until)
SELECT name, job_id, token, clock_timestamp() + make_interval(secs => %s)
FROM unnest(%s::text[], %s::uuid[], %s::text[]) AS slot (name, job_id, token)
