-- One target in numbers: seconds since the oldest job that waits was due first; how many wait though they are due, how
-- many are held up, scheduled and parked, each counted up to 10,001. Parameter: target, six times.
SELECT extract(epoch FROM statement_timestamp() - least(
           (
               SELECT available_at FROM {outbox}
               WHERE target = %s AND parked_at IS NULL AND ordering_key IS NULL
                 AND available_at <= statement_timestamp()
               ORDER BY available_at, seq LIMIT 1
           ),
           (
               SELECT due_at FROM {outbox}
               WHERE target = %s AND parked_at IS NULL AND (ordering_key IS NOT NULL OR attempts > 0)
                 AND due_at <= statement_timestamp()
               ORDER BY due_at LIMIT 1
           )
       ))::float8,
       (
           SELECT count(*) FROM (
               SELECT FROM {outbox}
               WHERE target = %s AND parked_at IS NULL AND ordering_key IS NULL
                 AND available_at <= statement_timestamp()
               LIMIT 10001
           ) AS due
       ),
       (
           SELECT count(*) FROM (
               SELECT FROM {outbox}
               WHERE target = %s AND parked_at IS NULL AND (ordering_key IS NOT NULL OR attempts > 0)
                 AND due_at <= statement_timestamp()
                 AND (ordering_key IS NOT NULL OR available_at > statement_timestamp())
               LIMIT 10001
           ) AS held_up
       ),
       (
           SELECT count(*) FROM (
               SELECT FROM {outbox}
               WHERE target = %s AND parked_at IS NULL AND ordering_key IS NULL
                 AND available_at > statement_timestamp()
               LIMIT 10001
           ) AS scheduled
       ),
       (SELECT count(*) FROM (SELECT FROM {outbox} WHERE target = %s AND parked_at IS NOT NULL LIMIT 10001) AS parked)
