-- Jobs that moved to or from a broker, which knows none by its id: where each may run, and which of its copies there. See journal.py.
CREATE TABLE {move_journal} (
    job_id  text    NOT NULL PRIMARY KEY,
    home    text    NOT NULL,            -- the store in which it may run
    copy    text,                        -- the copy that was claimed first: the others are not run
    sent    integer NOT NULL DEFAULT 0   -- how many copies of it may be in its home
);
