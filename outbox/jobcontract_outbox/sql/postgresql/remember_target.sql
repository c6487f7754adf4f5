-- Parameters: target; its capabilities as JSON.
INSERT INTO {outbox_targets} (target, capabilities) VALUES (%s, %s)
ON CONFLICT (target) DO UPDATE SET capabilities = excluded.capabilities, seen_at = statement_timestamp()
