UPDATE jobcontract_queues
SET paused = 0
WHERE name = :queue
