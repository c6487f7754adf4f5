INSERT INTO jobcontract_queues (name, paused)
VALUES (:queue, 1)
ON CONFLICT (name) DO UPDATE SET paused = 1
