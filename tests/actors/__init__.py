"""Tests of what an actor needs and how each step is done."""
