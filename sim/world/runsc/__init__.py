"""One model of runsc, without I/O: what each command does, says and leaves, and what lives inside a sandbox.

`cli` is the command, a generator that yields what takes time; `sentry` is the kernel inside a sandbox, a state machine
with time handed in; `programs` are the applications; `image` is what a checkpoint writes and a restore reads. Two faces
perform it: the simulated process port (`sim.world.processes`) and `fake_runsc`, a real program.

What is said of runsc here was measured on runsc 20240729 ("R24") unless it says HEAD, which was read in its source of
2026. tests/contract holds the model, the fake program and the real binary to the same sentences.
"""
