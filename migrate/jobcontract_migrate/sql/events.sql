-- Parameter: number.
SELECT at, epoch, state, said FROM {move_events} WHERE number = %s ORDER BY position
