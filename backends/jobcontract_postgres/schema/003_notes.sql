-- Oldest code that works with this: 1
--
-- Small texts by name that outlive every process: how far each schedule has come.
CREATE TABLE {schema}.job_notes (
    name  text NOT NULL,
    note  text NOT NULL,
    CONSTRAINT job_notes_pkey PRIMARY KEY (name)
);

COMMENT ON TABLE {schema}.job_notes IS 'jobcontract: what processes leave for each other, such as the places of schedules';
