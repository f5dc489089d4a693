"""Traces of a fleet: what was asked of it and what happened to it, in order. The format is in docs/traces.md."""
