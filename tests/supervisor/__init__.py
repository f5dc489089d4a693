"""Tests of the supervisor with fakes; those with real sandboxes are elsewhere."""
