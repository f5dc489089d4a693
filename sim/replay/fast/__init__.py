"""The fast engine: the state machine in a heap of times, with the time of every step drawn instead of spent."""
