"""The mock GPU node: on a real machine, everything that a node with GPUs has but the silicon."""
