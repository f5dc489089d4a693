"""The pure machine: states, events, commands, guards, one table, one `step`, and the reason catalogue.

No I/O, no async, no clock: stdlib and attrs only. Everything else performs what this package says.
"""
