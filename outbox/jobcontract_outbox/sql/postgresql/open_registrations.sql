-- The transactions that may have registered a job and have not ended. Parameter: the ledger's name.
SELECT virtualtransaction
FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = to_regclass(%s)
  AND pid IS DISTINCT FROM pg_backend_pid()
