-- Unless the gate has seen a later epoch.
UPDATE jobcontract_gate
SET epoch = :epoch, intake = :intake, claims = :claims
WHERE epoch <= :epoch
