-- Lets one at a time compare the gate's epoch and set it.
SELECT pg_advisory_xact_lock(hashtextextended({gate}, 2))::text
