-- Those of the named indexes that are missing or not valid: (name, whether it is there, whether somebody is building it).
-- Parameter: array of names.
SELECT wanted.name, class.oid IS NOT NULL,
       EXISTS (SELECT FROM pg_stat_progress_create_index AS progress WHERE progress.index_relid = class.oid)
FROM unnest(%s::text[]) AS wanted (name)
LEFT JOIN pg_class AS class
    ON class.relname = wanted.name AND class.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {name})
LEFT JOIN pg_index AS index ON index.indexrelid = class.oid
WHERE index.indisvalid IS NOT TRUE
ORDER BY 1
