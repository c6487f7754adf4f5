-- Sets the gate, unless it has seen a later epoch. Visible to everybody at once, whatever becomes of the transaction.
-- Parameters: the value; the value.
SELECT setval({gate}, %s) FROM {schema}.gate WHERE last_value / 4 <= %s / 4
