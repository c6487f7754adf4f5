CREATE TABLE {versions} (
    version     integer     NOT NULL PRIMARY KEY,
    title       text        NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT statement_timestamp()
);
