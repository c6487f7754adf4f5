-- One installation at a time. Parameter: what is installed.
SELECT pg_advisory_xact_lock(hashtextextended(%s, 2))
