-- Parameters: 1 or 0; number.
UPDATE {moves} SET paused = %s WHERE number = %s
