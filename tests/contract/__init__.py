"""One set of tests for the world outside and its stand-ins, so that they cannot drift apart."""
