"""What an actor needs and how each step is done: documents, bundles, runsc, journal, snapshots.

Touches the world only through the Protocols in `actors/ports.py`.
"""
