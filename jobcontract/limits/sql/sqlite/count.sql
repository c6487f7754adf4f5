SELECT name, count(*) FROM {slots} WHERE name IN (SELECT value FROM json_each(?)) GROUP BY name
