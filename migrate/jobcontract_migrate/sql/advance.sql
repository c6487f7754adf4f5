-- The next step, unless the migration is no more where its owner believes it to be.
-- Parameters: source, target, state, epoch, home, consulted, keys_copied, claimed, seconds of the fence (or null); number, owner,
-- epoch so far. A fence that has run out can't be crossed any more.
UPDATE {moves}
SET source = %s, target = %s, state = %s, epoch = %s, home = %s, consulted = %s, keys_copied = %s, claimed = %s,
    fence_until = {now} + %s, changed_at = {now}
WHERE number = %s AND owner = %s AND epoch = %s AND (fence_until IS NULL OR fence_until > {now})
RETURNING epoch
