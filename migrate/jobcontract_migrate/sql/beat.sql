-- A client is there. Parameters: client, name, epoch, claims, brokers whose jobs it runs.
INSERT INTO {move_clients} (client, name, epoch, claims, holds, seen_at)
VALUES (%s, %s, %s, %s, %s, {now})
ON CONFLICT (client) DO UPDATE
SET epoch = excluded.epoch, claims = excluded.claims, holds = excluded.holds, seen_at = excluded.seen_at
