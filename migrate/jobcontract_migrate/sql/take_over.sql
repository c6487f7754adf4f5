-- Become the owner, unless another one is at work.
-- Parameters: owner, seconds that it is believed; number, owner, owner that is known to be dead.
UPDATE {moves}
SET owner = %s, owner_until = {now} + %s
WHERE number = %s AND (owner IS NULL OR owner = %s OR owner = %s OR owner_until < {now})
RETURNING number
