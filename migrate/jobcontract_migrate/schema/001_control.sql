-- Every migration; the last one says where jobs live. Instants are seconds since 1970, by the clock of this database.
CREATE TABLE {moves} (
    number       integer          NOT NULL PRIMARY KEY,
    source       text             NOT NULL,            -- where jobs come from: it changes place with target when it is reversed
    target       text             NOT NULL,
    state        text             NOT NULL,
    epoch        bigint           NOT NULL,            -- grows with every step, over all migrations
    home         text             NOT NULL,            -- where jobs are registered
    consulted    text,                                 -- whose jobs and keys are known there too
    keys_copied  integer          NOT NULL DEFAULT 0,  -- 1: home knows all keys of consulted
    claimed      text             NOT NULL,            -- where jobs are claimed: names, separated by commas
    fence_until  double precision,                     -- after this anybody may lift the fence
    paused       integer          NOT NULL DEFAULT 0,
    owner        text,                                 -- the coordinator at work, and until when that is believed
    owner_until  double precision,
    started_at   double precision NOT NULL,
    changed_at   double precision NOT NULL,
    facts        text             NOT NULL             -- JSON: what the report tells
);

-- What happened, in order.
CREATE TABLE {move_events} (
    number    integer          NOT NULL,
    position  integer          NOT NULL,
    at        double precision NOT NULL,
    epoch     bigint           NOT NULL,
    state     text             NOT NULL,
    said      text             NOT NULL,
    PRIMARY KEY (number, position)
);

-- Jobs whose idempotency key another job held when they came. Both were stored.
CREATE TABLE {move_conflicts} (
    number           integer NOT NULL,
    job_id           text    NOT NULL,
    holder_id        text    NOT NULL,
    queue            text    NOT NULL,
    idempotency_key  text    NOT NULL,
    PRIMARY KEY (number, job_id)
);

-- Everybody who follows this table: producers, workers, commands. Rows outlive their processes for a day.
CREATE TABLE {move_clients} (
    client   text             NOT NULL PRIMARY KEY,
    name     text             NOT NULL,            -- host and process, for people
    epoch    bigint           NOT NULL,            -- the step that it goes by
    claims   integer          NOT NULL,            -- 1: it has claimed jobs
    seen_at  double precision NOT NULL
);
