"""The faithful engine: each worker of a fleet is a simulated machine with the real supervisor."""
