-- Parameters: name, when the next turn is.
INSERT INTO {rates} (name, next_at) VALUES (%s, %s)
ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at
