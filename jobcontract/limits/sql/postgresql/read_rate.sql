-- When the next turn is, if one was ever given, and the clock; in seconds since 1970. Parameter: name.
SELECT (SELECT next_at FROM {rates} WHERE name = %s), extract(epoch FROM clock_timestamp())::double precision
