-- Parameters: facts; number, owner.
UPDATE {moves} SET facts = %s WHERE number = %s AND owner = %s
