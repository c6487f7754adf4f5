-- Fenced: a slot that ran out is not revived. Parameters: seconds; arrays of job ids, tokens.
UPDATE {slots} AS held
SET held_until = clock_timestamp() + make_interval(secs => %s)
FROM unnest(%s::uuid[], %s::text[]) AS ours (job_id, token)
WHERE held.job_id = ours.job_id AND held.token = ours.token AND held.held_until > clock_timestamp()
RETURNING held.job_id::text
