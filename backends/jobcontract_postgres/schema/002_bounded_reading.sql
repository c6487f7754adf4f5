-- Oldest code that works with this: 1
--
-- What pruning and the numbers of dead jobs read, without walking over the rest. On tables that are in use an index is built
-- before the rest of its migration, without a lock that anybody would notice: see indexes.py.
CREATE INDEX dead_jobs_finished ON {schema}.dead_jobs (state, finished_at);
CREATE INDEX dead_jobs_queue ON {schema}.dead_jobs (queue, state);

-- Which code may go on working while the schema is already that of a later one.
ALTER TABLE {schema}.schema_version ADD COLUMN IF NOT EXISTS oldest_code integer;

-- A producer need not be allowed to delete jobs for the rare case in which this takes back its own.
ALTER FUNCTION {schema}.withdraw_ended(uuid[], timestamptz) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
