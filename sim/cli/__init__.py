"""Commands that need the simulated world."""
