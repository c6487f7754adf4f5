INSERT INTO {versions} (version, title) VALUES (%s, %s)
