-- Parameter: seconds.
DELETE FROM {move_clients} WHERE seen_at < {now} - %s
