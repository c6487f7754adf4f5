-- How many slots are held under each of these limits. Parameter: array of names.
SELECT name, count(*) FROM {slots} WHERE name = ANY (%s::text[]) GROUP BY name
