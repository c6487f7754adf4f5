-- Whether there is a table of versions. Parameter: its name.
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?)
