"""What one document may hold at most. Each limit is met with a reason, never with a crash or a long wait."""

from __future__ import annotations

from typing import Final

DOCUMENT_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 64
"""Mappings and lists around a value, the root included."""
NODES_MAX: Final = 50_000
"""Values and keys in one document. 1 MiB of `[,,,]` would be half a million, which takes seconds to read."""
FINDINGS_MAX: Final = 200
"""Problems kept for one document; reading for more would let a hostile text buy time with every line."""
TEXT_BYTES_MAX: Final = 32 << 10
"""One text in UTF-8, unless its field says otherwise."""
SHOWN_CHARACTERS_MAX: Final = 80
"""How much of an offending value a message repeats."""
