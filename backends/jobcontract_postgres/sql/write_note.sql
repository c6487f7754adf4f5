-- Writes a note that says what is expected (NULL: that does not exist); one row if it did.
-- Parameters: text, name, expected; name, text, expected.
--
-- Of two at once the second waits for the first, and then finds that the note says something else.
WITH changed AS (
    UPDATE {schema}.job_notes SET note = %s WHERE name = %s AND note = %s::text
    RETURNING name
), created AS (
    INSERT INTO {schema}.job_notes (name, note)
    SELECT %s, %s
    WHERE %s::text IS NULL
    ON CONFLICT DO NOTHING
    RETURNING name
)
SELECT name FROM changed
UNION ALL
SELECT name FROM created
