"""The acceptance suite on real gVisor: the real worker, real sandboxes, and everything that may go wrong with them."""
