-- The notes of these names, NULL where there is none, each beside the clock.
-- Parameter: array of names.
SELECT asked.name, job_notes.note, clock_timestamp()
FROM unnest(%s::text[]) AS asked (name)
LEFT JOIN {schema}.job_notes USING (name)
