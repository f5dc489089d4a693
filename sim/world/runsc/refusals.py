"""How a question to a sandbox's kernel goes wrong."""

from __future__ import annotations


class SandboxError(Exception):
    """Raised when a question is answered with an error; the text is runsc's."""


class PanicError(Exception):
    """Raised when the kernel dies of a question."""
