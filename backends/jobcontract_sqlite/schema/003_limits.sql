-- Who runs under a limit that holds across processes. In seconds since 1970: when the slot runs out.
CREATE TABLE jobcontract_limit_slots (
    name        TEXT NOT NULL,
    job_id      TEXT NOT NULL,
    token       TEXT NOT NULL,
    held_until  REAL NOT NULL,
    PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX jobcontract_limit_slots_name ON jobcontract_limit_slots (name);

-- When the next job may start under a rate limit, in seconds since 1970.
CREATE TABLE jobcontract_limit_rates (
    name     TEXT NOT NULL PRIMARY KEY,
    next_at  REAL NOT NULL
) STRICT, WITHOUT ROWID;
