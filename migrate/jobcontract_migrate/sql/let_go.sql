-- Parameters: number, owner.
UPDATE {moves} SET owner = NULL, owner_until = NULL WHERE number = %s AND owner = %s
