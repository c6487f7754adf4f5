-- What has been open for longer than the patience: (kind, what it is, how many seconds). An old snapshot keeps vacuum from the dead
-- rows of every table of its database, and a replication slot from those of the cluster.
-- Parameter: patience.
WITH patience AS MATERIALIZED (
    SELECT %s::interval AS longest
)
SELECT CASE WHEN state LIKE 'idle in transaction%%' THEN 'idle' ELSE 'busy' END,
       pid::text || ' of ' || quote_ident(usename)
           || CASE WHEN application_name = '' THEN '' ELSE ' (' || left(application_name, 60) || ')' END,
       extract(epoch FROM clock_timestamp() - CASE WHEN state LIKE 'idle%%' THEN state_change ELSE xact_start END)::float8
FROM pg_stat_activity, patience
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND CASE
          WHEN state LIKE 'idle in transaction%%' THEN state_change < clock_timestamp() - longest
          ELSE backend_xmin IS NOT NULL AND xact_start < clock_timestamp() - longest
      END
UNION ALL
SELECT 'prepared', quote_literal(gid), extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts, patience
WHERE database = current_database() AND prepared < clock_timestamp() - longest
UNION ALL
SELECT 'slot', quote_literal(slot_name), NULL
FROM pg_replication_slots
WHERE NOT active AND (xmin IS NOT NULL OR catalog_xmin IS NOT NULL) AND (database IS NULL OR database = current_database())
ORDER BY 1, 3 DESC
LIMIT 20
