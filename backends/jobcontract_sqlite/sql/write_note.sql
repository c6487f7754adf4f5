INSERT INTO jobcontract_job_notes (name, note)
VALUES (:name, :text)
ON CONFLICT (name) DO NOTHING
RETURNING name
