"""The simulated world behind the same ports."""
