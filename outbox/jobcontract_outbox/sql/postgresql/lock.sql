-- Holds rows until the transaction ends: those that nobody else holds. Parameter: array of seq.
SELECT seq FROM {outbox} WHERE seq = ANY (%s::bigint[]) ORDER BY seq FOR UPDATE SKIP LOCKED
