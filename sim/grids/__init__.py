"""Many runs: of replays or of chaos, over seeds and settings, here or on a cluster, and never one twice."""
