-- Removes tombstones and placeholders; `prune_keys.sql` follows.
DELETE FROM jobcontract_moving INDEXED BY jobcontract_moving_id
WHERE id IN (
    SELECT id FROM jobcontract_moving WHERE state = 'moved' OR was = 'moving' LIMIT :limit
)
RETURNING id, queue, idempotency_key
