SELECT epoch, intake, claims FROM jobcontract_gate
