-- Where jobs that end now are written: the page 2,000 before the last one of today's partition, or of the safety net.
SELECT greatest(0, pg_relation_size(class.oid) / current_setting('block_size')::integer - 2000)
FROM pg_class AS class
JOIN pg_namespace AS schema ON schema.oid = class.relnamespace
WHERE schema.nspname = {name}
  AND relname IN ('done_jobs_rest', 'done_jobs_' || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD'))
ORDER BY relname = 'done_jobs_rest'
LIMIT 1
