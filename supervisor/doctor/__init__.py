"""`greenroom doctor`: can this pod run GPU actors? A module for each kind of thing, a judging function for each thing.

What is looked at is gathered first, as plain facts, through the ports; then a pure function says ok, warn or fail of
it, with a reason of the catalogue and what to do. Nothing is changed: what is tried is tried in a scratch directory.
"""
