-- Whether there is a table of versions. Parameter: its name.
SELECT to_regclass(%s) IS NOT NULL
