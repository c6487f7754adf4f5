-- The partitions of the history that have no index of their own under the one of the whole. Parameter: its name.
SELECT partition.relname::text
FROM pg_inherits
JOIN pg_class AS partition ON partition.oid = inhrelid
JOIN pg_class AS history ON history.oid = inhparent
JOIN pg_namespace AS schema ON schema.oid = history.relnamespace
WHERE schema.nspname = {name} AND history.relname = 'done_jobs'
  AND NOT EXISTS (
      SELECT
      FROM pg_index
      JOIN pg_inherits AS attached ON attached.inhrelid = pg_index.indexrelid
      JOIN pg_class AS whole ON whole.oid = attached.inhparent
      WHERE pg_index.indrelid = partition.oid AND whole.relname = %s AND whole.relnamespace = partition.relnamespace
  )
ORDER BY 1
