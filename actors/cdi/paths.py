"""Paths as they are compared: lexically clean, the way Go's path/filepath does it."""

from __future__ import annotations

import posixpath


def clean(path: str) -> str:
    """The shortest form of a path by its text alone; "." for the empty one."""
    short = posixpath.normpath(path)
    # POSIX lets exactly two leading slashes mean something else; nobody here does.
    return short[1:] if short.startswith("//") else short
