-- The states of some jobs: (id, state).
-- Parameter: array of id.
SELECT id::text, state
FROM {schema}.jobs
WHERE id = ANY (%s::uuid[])
