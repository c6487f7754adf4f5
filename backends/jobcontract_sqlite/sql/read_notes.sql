SELECT
    asked.value, notes.note,
    CAST(julianday('now') * 86400000 - 210866760000000 + 0.5 AS INTEGER) * 1000
FROM json_each(:names) AS asked
LEFT JOIN jobcontract_job_notes AS notes ON notes.name = asked.value
