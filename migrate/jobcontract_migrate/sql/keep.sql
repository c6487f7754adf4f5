-- Go on being the owner. Parameters: seconds that it is believed; number, owner.
UPDATE {moves} SET owner_until = {now} + %s WHERE number = %s AND owner = %s RETURNING paused
