INSERT INTO {rates} (name, next_at) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at
