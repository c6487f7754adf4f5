-- Not a statement of its own: whether this statement's snapshot still tells the truth (see schema/005_cheaper_registration.sql).
{schema}.unchanged_since(pg_current_snapshot()::text)
