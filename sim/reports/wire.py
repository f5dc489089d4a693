"""Protobuf's wire format, as far as a trace of Perfetto needs it: numbers, and texts and messages with their length.

Source: protobuf.dev, "Encoding": base-128 varints, records of the types 0 and 2.
"""

from __future__ import annotations

from typing import Final

_MORE: Final = 0x80
_SHORT_FIELD: Final = 16


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that there are more. No negative ones are needed."""
    if value < _MORE:
        return bytes((value,))
    found = bytearray()
    while value >= _MORE:
        found.append(value & 0x7F | _MORE)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> bytes:
    """A field that holds a number, an enum or a bool."""
    return varint(field << 3) + varint(value)


def block(field: int, *parts: bytes) -> bytes:
    """A field that holds a message: its fields, one after the other."""
    content = b"".join(parts)
    size = len(content)
    if field < _SHORT_FIELD and size < _MORE:  # nearly every one
        return bytes((field << 3 | 2, size)) + content
    return varint(field << 3 | 2) + varint(size) + content


def text(field: int, value: str) -> bytes:
    """A field that holds text."""
    return block(field, value.encode())
