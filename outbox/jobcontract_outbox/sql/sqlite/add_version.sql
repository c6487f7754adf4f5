INSERT INTO {outbox_schema} (version, title) VALUES (?, ?)
