-- The transactions that hold the lock which every registration takes before it reads the gate, and keeps until it ends.
SELECT virtualtransaction
FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = {live}::regclass
  AND pid IS DISTINCT FROM pg_backend_pid()
