-- Small texts by name that outlive every process: how far each schedule has come.
CREATE TABLE jobcontract_job_notes (
    name  TEXT NOT NULL PRIMARY KEY,
    note  TEXT NOT NULL
) STRICT, WITHOUT ROWID;
