-- Oldest code that works with this: 1
--
-- Whether no transaction that wrote anything has ended since the snapshot `seen` (pg_current_snapshot(), as text) was taken. If so,
-- what a statement does not see, by its own snapshot, is not there. A function that is VOLATILE takes a snapshot of its own.
CREATE FUNCTION {schema}.unchanged_since(seen text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $jobcontract$
BEGIN
    RETURN pg_catalog.pg_current_snapshot()::text OPERATOR(pg_catalog.=) seen;
END
$jobcontract$;

-- A registration looks whether its job has ended by itself, which costs a third of having a function look. Ids are no secret to those
-- who may use the schema.
GRANT SELECT (id, finished_at) ON {schema}.done_jobs TO PUBLIC;
GRANT SELECT (id) ON {schema}.dead_jobs, {schema}.moving_jobs TO PUBLIC;
