-- One target in numbers: seconds since the oldest job that waits was due first; how many wait though they are due, how
-- many are held up, scheduled and parked, each counted up to 10,001. Parameter: target.
WITH clock AS (SELECT now FROM jobcontract_clock)
SELECT ((SELECT now FROM clock) - (
           SELECT min(at) FROM (
               SELECT min(available_at) AS at FROM {outbox}
               WHERE target = ?1 AND parked_at IS NULL AND ordering_key IS NULL
                   AND available_at <= (SELECT now FROM clock)
               UNION ALL
               SELECT min(due_at) FROM {outbox}
               WHERE target = ?1 AND parked_at IS NULL AND (ordering_key IS NOT NULL OR attempts > 0)
                   AND due_at <= (SELECT now FROM clock)
           )
       )) / 1e6,
       (
           SELECT count(*) FROM (
               SELECT 1 FROM {outbox}
               WHERE target = ?1 AND parked_at IS NULL AND ordering_key IS NULL
                   AND available_at <= (SELECT now FROM clock)
               LIMIT 10001
           )
       ),
       (
           SELECT count(*) FROM (
               SELECT 1 FROM {outbox}
               WHERE target = ?1 AND parked_at IS NULL AND (ordering_key IS NOT NULL OR attempts > 0)
                   AND due_at <= (SELECT now FROM clock)
                   AND (ordering_key IS NOT NULL OR available_at > (SELECT now FROM clock))
               LIMIT 10001
           )
       ),
       (
           SELECT count(*) FROM (
               SELECT 1 FROM {outbox}
               WHERE target = ?1 AND parked_at IS NULL AND ordering_key IS NULL
                   AND available_at > (SELECT now FROM clock)
               LIMIT 10001
           )
       ),
       (SELECT count(*) FROM (SELECT 1 FROM {outbox} WHERE target = ?1 AND parked_at IS NOT NULL LIMIT 10001))
