-- Jobs that arrived in a store, newest id first. Parameters: home; the id to begin before; limit.
SELECT job_id FROM {move_journal} WHERE home = %s AND arrived = 1 AND job_id < %s ORDER BY job_id DESC LIMIT %s
