INSERT INTO {versions} (version, title) VALUES (?, ?)
