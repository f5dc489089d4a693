"""The differential of whole lives: the same worker on the fake runsc and on the real one must come to the same."""
