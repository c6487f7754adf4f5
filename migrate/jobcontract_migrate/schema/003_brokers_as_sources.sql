-- What it takes to move jobs from a broker.
ALTER TABLE {move_journal} ADD COLUMN arrived integer NOT NULL DEFAULT 1;  -- 0: on its way from a broker, and may not be in its home yet
ALTER TABLE {move_clients} ADD COLUMN holds text NOT NULL DEFAULT '';      -- brokers whose jobs it runs: names, separated by commas
-- Queues that were seen at brokers, which can't list theirs.
CREATE TABLE {move_queues} (
    store  text NOT NULL,
    queue  text NOT NULL,
    PRIMARY KEY (store, queue)
);
