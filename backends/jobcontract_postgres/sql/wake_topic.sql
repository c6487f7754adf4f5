-- Wakes those who wait for a topic, when the transaction commits. Parameter: the topic.
SELECT {wake} FROM (VALUES (%s::text)) AS topic (queue)
