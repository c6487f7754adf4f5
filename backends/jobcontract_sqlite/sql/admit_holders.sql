-- Of these jobs, those whose key another one holds, and which.
SELECT json_extract(item.value, '$.id'), holder.job_id
FROM json_each(:jobs) AS item
CROSS JOIN jobcontract_keys AS holder -- in this order
    ON holder.idempotency_key = json_extract(item.value, '$.idempotency_key')
    AND holder.queue = json_extract(item.value, '$.queue')
WHERE json_extract(item.value, '$.fingerprint') IS NOT NULL
    AND holder.job_id <> json_extract(item.value, '$.id')
