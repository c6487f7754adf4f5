-- A client is there. Parameters: client, name, epoch, claims.
INSERT INTO {move_clients} (client, name, epoch, claims, seen_at)
VALUES (%s, %s, %s, %s, {now})
ON CONFLICT (client) DO UPDATE SET epoch = excluded.epoch, claims = excluded.claims, seen_at = excluded.seen_at
