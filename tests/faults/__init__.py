"""The fault laboratory: real servers under attack, a history of what everybody was told, and a checker.

::

    plan (seed) -> producers --+                        +--> history (JSON lines, one file per process)
                               +--> store <-- nemesis   |        |
                   workers ----+                        +--> ledger (what handlers did, outside the store)
                   relay ------+                                 |
                                                    facts -> promises 1 .. 12 -> violations: which, where, why

Nothing that the store says about itself is believed where somebody else has seen it: a job is lost when its
registration was acknowledged and it is not there at the end, whatever the statistics say. What a killed
client was told is unknown, and then both outcomes are fine; the checker accuses only where no outcome would
do.

`python -m tests.faults` runs it (`make faults`, `make faults-long`). A run is named by its scenario and its
seed: the seed decides the jobs, the order of the faults and their victims; the scheduler of the machine does
the rest.
"""
