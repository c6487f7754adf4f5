-- Parameters: arrays of job ids, tokens.
DELETE FROM {slots} AS held
USING unnest(%s::uuid[], %s::text[]) AS ours (job_id, token)
WHERE held.job_id = ours.job_id AND held.token = ours.token
