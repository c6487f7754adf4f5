-- One transaction at a time decides about these limits. In one order, so that two can't deadlock.
-- Parameter: array of names.
SELECT count(pg_advisory_xact_lock(hashtextextended('jobcontract limit ' || each.name, 0)))
FROM (SELECT unnest(%s::text[]) AS name ORDER BY 1) AS each
