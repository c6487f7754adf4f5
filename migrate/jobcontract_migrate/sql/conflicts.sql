-- Parameter: number.
SELECT job_id, holder_id, queue, idempotency_key FROM {move_conflicts} WHERE number = %s ORDER BY job_id
