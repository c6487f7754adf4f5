-- Deletes exactly what was confirmed. Parameter: array of seq.
DELETE FROM {outbox} WHERE seq = ANY (%s::bigint[])
