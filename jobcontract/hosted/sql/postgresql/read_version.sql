-- The version of the tables; 0 when the table of versions is empty.
SELECT coalesce(max(version), 0) FROM {versions}
