-- The last migration.
SELECT number, source, target, state, epoch, home, consulted, keys_copied, claimed, fence_until, paused, owner, owner_until,
       started_at, changed_at, facts, {now}
FROM {moves}
ORDER BY number DESC
LIMIT 1
