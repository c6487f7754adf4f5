-- Those of our indexes that are missing, or that a broken build left behind unusable: (name, whether it is there).
-- Parameter: array of names.
SELECT wanted.name, class.oid IS NOT NULL
FROM unnest(%s::text[]) AS wanted (name)
LEFT JOIN pg_class AS class
    ON class.relname = wanted.name AND class.relnamespace = (
        SELECT relnamespace FROM pg_class WHERE oid = '{schema}.live_jobs'::regclass
    )
LEFT JOIN pg_index AS index ON index.indexrelid = class.oid
WHERE index.indisvalid IS NOT TRUE
ORDER BY 1
