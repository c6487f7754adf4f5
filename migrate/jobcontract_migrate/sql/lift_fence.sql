-- Back to where the fence was put up, once it has run out: anybody may, for its owner may be dead.
-- Parameter: number. One row (source, epoch) when it was lifted by this.
UPDATE {moves}
SET state = 'dual_read', epoch = epoch + 1, fence_until = NULL, changed_at = {now}
WHERE number = %s AND state = 'fencing' AND fence_until <= {now}
RETURNING source, epoch
