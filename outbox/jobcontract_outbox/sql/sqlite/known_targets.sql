-- The targets that were initialised here, whether they are still configured or not.
SELECT target FROM {outbox_targets} ORDER BY target
