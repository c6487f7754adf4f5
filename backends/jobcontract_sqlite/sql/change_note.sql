UPDATE jobcontract_job_notes SET note = :text
WHERE name = :name AND note = :expected
RETURNING name
