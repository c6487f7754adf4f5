-- Hold the migration where it is until the transaction ends: one row, unless a later step has begun. Parameters: number, epoch.
UPDATE {moves} SET epoch = epoch WHERE number = %s AND epoch = %s RETURNING epoch
