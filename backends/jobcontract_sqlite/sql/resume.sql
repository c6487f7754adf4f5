DELETE FROM jobcontract_queues
WHERE queue = :queue
