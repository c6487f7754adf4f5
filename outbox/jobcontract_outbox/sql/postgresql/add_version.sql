INSERT INTO {outbox_schema} (version, title) VALUES (%s, %s)
