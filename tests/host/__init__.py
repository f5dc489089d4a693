"""Tests of the real ports, on the real machine."""
