"""Chaos: seeded random runs of the real supervisor in the simulated world, with faults of everything that can fail.

One seed is one plan (`plan`, `drawing`), one plan is one run (`running`): safety while faults happen (`watching`), then
liveness without them (`settling`). A campaign (`campaign`) is many seeds and what came of them.
"""
