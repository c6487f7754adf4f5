-- Which database of which running server this is: one row (start of the server, database).
-- Numbers, for the text of an instant depends on the settings of the session.
SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, oid::bigint
FROM pg_database
WHERE datname = current_database()
