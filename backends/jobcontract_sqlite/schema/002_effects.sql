-- What `once` remembers: which results were written already.
CREATE TABLE IF NOT EXISTS jobcontract_effects (
    queue            TEXT    NOT NULL,
    effect           TEXT    NOT NULL,
    recorded_at      INTEGER NOT NULL,
    PRIMARY KEY (queue, effect)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS jobcontract_effects_recorded ON jobcontract_effects (recorded_at);
