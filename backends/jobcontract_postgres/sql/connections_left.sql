-- How many more connections this user may open: (the limit that is met first, its value, how many are in use, how many are left).
SELECT name, value, used, value - used
FROM (
    SELECT 'max_connections' AS name,
           (
               SELECT max(CASE name WHEN 'max_connections' THEN setting::bigint END)
                      - coalesce(sum(CASE WHEN name <> 'max_connections' THEN setting::bigint END), 0)
               FROM pg_settings
               WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')
           ) AS value,
           (SELECT sum(numbackends) FROM pg_stat_database) AS used
    UNION ALL
    SELECT 'the CONNECTION LIMIT of the database', datconnlimit, numbackends
    FROM pg_database JOIN pg_stat_database USING (datname)
    WHERE datname = current_database() AND datconnlimit >= 0
    UNION ALL
    SELECT 'the CONNECTION LIMIT of the role', rolconnlimit, (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user)
    FROM pg_roles
    WHERE rolname = current_user AND rolconnlimit >= 0
) AS bound
ORDER BY value - used
LIMIT 1
