-- Oldest code that works with this: 1
--
-- Who runs under a limit that holds across processes: a row for each slot that is taken, until it is freed or runs out.
CREATE TABLE {schema}.limit_slots (
    name        text        NOT NULL,
    job_id      uuid        NOT NULL,
    token       text        NOT NULL,
    held_until  timestamptz NOT NULL,
    CONSTRAINT limit_slots_pkey PRIMARY KEY (job_id, name)
);
CREATE INDEX limit_slots_name ON {schema}.limit_slots (name);

COMMENT ON TABLE {schema}.limit_slots IS 'jobcontract: who runs under a concurrency limit';

-- When the next job may start under a rate limit, in seconds since 1970.
CREATE TABLE {schema}.limit_rates (
    name     text             NOT NULL,
    next_at  double precision NOT NULL,
    CONSTRAINT limit_rates_pkey PRIMARY KEY (name)
);

COMMENT ON TABLE {schema}.limit_rates IS 'jobcontract: when the next job may start under a rate limit';
