-- What the store lets in: one row (epoch * 4 + intake * 2 + claims).
SELECT last_value FROM {schema}.gate
