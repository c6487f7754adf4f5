-- What a target could do when it was seen last. Parameter: target.
SELECT capabilities FROM {outbox_targets} WHERE target = ?
