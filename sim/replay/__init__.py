"""Replaying a trace against a fleet: two engines around one machine, and what each of them tells."""
