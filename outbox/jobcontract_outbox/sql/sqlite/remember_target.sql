-- Parameters: target; its capabilities as JSON.
INSERT INTO {outbox_targets} (target, capabilities, seen_at) VALUES (?1, ?2, (SELECT now FROM jobcontract_clock))
ON CONFLICT (target) DO UPDATE SET capabilities = excluded.capabilities, seen_at = excluded.seen_at
