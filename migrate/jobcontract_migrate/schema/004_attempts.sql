-- What a job from a broker had been through when a mover first took it: what comes back to a broker, it counts as one attempt more.
ALTER TABLE {move_journal} ADD COLUMN attempt integer;   -- null: it was never on its way from a broker
ALTER TABLE {move_journal} ADD COLUMN refunded integer;
