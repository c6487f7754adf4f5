-- Parameters: number, source, target, state, epoch, home, claimed, owner, seconds that it is believed, facts.
INSERT INTO {moves} (
    number, source, target, state, epoch, home, claimed, owner, owner_until, started_at, changed_at, facts
)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, {now} + %s, {now}, {now}, %s)
ON CONFLICT DO NOTHING
RETURNING number
