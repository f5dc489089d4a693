"""Invariants, looked at from outside: what must be so of the world whatever has happened. `registry` has them all."""
