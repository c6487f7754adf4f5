"""The states of a migration, and what each means for those who register and those who work.

::

    preparing --> dual_read --> fencing --> moving --> verifying --> sealed --> completed
        |            |  ^          |           |            |           |
        |            |  +- postponed           +---- reverse ----------+
        v            v                                 |
     aborted <-------+              dual_read, with source and target in each other's place

=========  ==========  =============  =====================================================================
state      jobs go to  are claimed at what happens
=========  ==========  =============  =====================================================================
preparing  source      source         the target's objects are made, a canary runs there, done keys are copied
dual_read  source      both           every live client has to know the target
fencing    nowhere     both           seconds: the source is shut, open transactions end
moving     target      both           keys, then jobs, batch by batch; what runs at the source ends there
verifying  target      both           the two stores are compared, job by job
sealed     target      target         the source takes no claims either; going back loses nothing
completed  target      target         the traces at the source are removed: the point of no return
=========  ==========  =============  =====================================================================
"""

from __future__ import annotations

from enum import StrEnum

from jobcontract.side_doors import Gate


class Phase(StrEnum):
    """Where a migration is. See the drawing in this module's docstring."""

    PREPARING = "preparing"
    DUAL_READ = "dual_read"
    FENCING = "fencing"
    MOVING = "moving"
    VERIFYING = "verifying"
    SEALED = "sealed"
    COMPLETED = "completed"
    ABORTED = "aborted"


IN_ORDER = (
    Phase.PREPARING,
    Phase.DUAL_READ,
    Phase.FENCING,
    Phase.MOVING,
    Phase.VERIFYING,
    Phase.SEALED,
    Phase.COMPLETED,
)
OVER = frozenset({Phase.COMPLETED, Phase.ABORTED})
BEFORE_THE_FENCE = frozenset({Phase.PREPARING, Phase.DUAL_READ, Phase.FENCING})
BEHIND_THE_FENCE = frozenset({Phase.MOVING, Phase.VERIFYING, Phase.SEALED})


def source_gate(phase: Phase, epoch: int) -> Gate:
    """What the source lets in."""
    match phase:
        case Phase.FENCING | Phase.MOVING | Phase.VERIFYING:
            return Gate(epoch, intake=False, claims=True)
        case Phase.SEALED | Phase.COMPLETED:
            return Gate(epoch, intake=False, claims=False)
        case _:
            return Gate(epoch, intake=True, claims=True)


def target_gate(phase: Phase, epoch: int, before: Gate) -> Gate:
    """What the target lets in. Until jobs are to be registered there, its intake stays as it was: others may
    use the store.
    """
    if phase is Phase.ABORTED:
        return before._replace(epoch=epoch)
    return Gate(epoch, intake=before.intake or phase in BEHIND_THE_FENCE | {Phase.COMPLETED}, claims=True)
