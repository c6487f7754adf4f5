-- Whether vacuum gets at the tables that are written all the time: (table, autovacuum is off for all, for this table, dead rows,
-- live rows, seconds since the last vacuum). As the statistics say; they cost no look at the tables.
SELECT class.relname::text,
       NOT (current_setting('autovacuum')::boolean AND current_setting('track_counts')::boolean),
       EXISTS (
           SELECT FROM pg_options_to_table(class.reloptions)
           WHERE option_name = 'autovacuum_enabled' AND NOT option_value::boolean
       ),
       pg_stat_get_dead_tuples(class.oid), pg_stat_get_live_tuples(class.oid),
       extract(epoch FROM clock_timestamp() - greatest(
           pg_stat_get_last_vacuum_time(class.oid), pg_stat_get_last_autovacuum_time(class.oid)
       ))::float8
FROM pg_class AS class
JOIN pg_namespace AS schema ON schema.oid = class.relnamespace
WHERE schema.nspname = {name} AND class.relname IN ('live_jobs', 'dead_jobs', 'job_keys')
ORDER BY 1
