-- Not a statement of its own: an expression over a row with a column `queue`, used by every verb that makes work due.
-- Parameter: the channel.
--
-- NOTIFY takes a lock of the whole cluster until its transaction has committed, so that many writers would queue up
-- on it. Hence it is sent only while somebody waits: a waiting worker's session holds this advisory lock in shared
-- mode, and the try fails. The lock is let go in the same expression and never outlives it.
CASE
    WHEN pg_try_advisory_lock(hashtextextended({channel} || queue, 0))
    THEN CASE WHEN pg_advisory_unlock(hashtextextended({channel} || queue, 0)) THEN NULL END
    ELSE pg_notify({channel}, queue)::text
END
