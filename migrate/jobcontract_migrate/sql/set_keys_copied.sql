-- Parameters: number, owner.
UPDATE {moves} SET keys_copied = 1 WHERE number = %s AND owner = %s RETURNING number
