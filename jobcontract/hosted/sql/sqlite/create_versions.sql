CREATE TABLE {versions} (
    version     INTEGER NOT NULL PRIMARY KEY,
    title       TEXT    NOT NULL,
    applied_at  TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) STRICT;
