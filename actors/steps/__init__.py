"""The steps: one module each, named as in the state machine. Each does what its command says and returns a fact.

A step has its contract at the top of its module: what it needs, what it makes, what undoes it, what it refuses. A step
that fails raises ProblemError; what it made by then is undone by `teardown`, which the machine orders.
"""
