-- Slots of earlier claims of these jobs, and those under these limits that ran out.
-- Parameters: arrays of job ids, names.
DELETE FROM {slots}
WHERE job_id = ANY (%s::uuid[])
   OR (name = ANY (%s::text[]) AND held_until <= clock_timestamp())
