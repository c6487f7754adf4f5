-- A page of the keys by the ids of the jobs that hold them, behind :after.
SELECT job_id, fingerprint
FROM jobcontract_keys INDEXED BY jobcontract_keys_job
WHERE job_id > :after
ORDER BY job_id
LIMIT :limit
