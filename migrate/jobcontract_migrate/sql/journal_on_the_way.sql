-- How many jobs are on their way from a broker.
SELECT count(*) FROM {move_journal} WHERE arrived = 0
