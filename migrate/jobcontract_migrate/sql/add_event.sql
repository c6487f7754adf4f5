-- Parameters: number, number, epoch, state, what is said.
INSERT INTO {move_events} (number, position, at, epoch, state, said)
SELECT %s, coalesce((SELECT max(position) FROM {move_events} WHERE number = %s), 0) + 1, {now}, %s, %s, %s
