"""What a checkpoint writes and a restore reads: small, deterministic, and damaged in the same ways as real images.

`checkpoint.img` is a magic word, the length of its metadata, the metadata as JSON and a digested body that says which
containers there are; `pages.img` has one or more pages for each, whose content (where its program stands, its counter)
no checksum of runsc's covers; `pages_meta.img` says where they lie. Flate has it all in the first file.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

import attrs
import orjson

MAGIC: Final = b"gVisorSF"
CHECKPOINT, PAGES_META, PAGES = "checkpoint.img", "pages_meta.img", "pages.img"
NONE, FLATE = "none", "flate-best-speed"

_LENGTH: Final = struct.Struct(">Q")
_DIGEST_BYTES: Final = 32
_PAGE_BYTES: Final = 4096
_GOROUTINE: Final = "\ngoroutine 11 [running]:\ngvisor.dev/gvisor/pkg/state.safely.func1()\n\tgvisor.dev/…"


class ImageError(Exception):
    """Raised when an image cannot be used; the text is what runsc says."""


@attrs.frozen(kw_only=True)
class Image:
    """One checkpoint.

    Attributes:
        metadata: strings; `container_count` among them, and in HEAD the version.
        body: what the kernel knows: containers by name with their spec's shape, flags, what else hangs on it.
        memory: of each started container, what its processes hold.
    """

    metadata: Mapping[str, str]
    body: Mapping[str, Any]
    memory: Mapping[str, Mapping[str, Any]]

    @property
    def count(self) -> int:
        """How many restores it takes."""
        return int(self.metadata["container_count"])


def encode(image: Image, *, compression: str, state_bytes: int = 0) -> dict[str, bytes]:
    """Return the files of an image, in the order in which they are written."""
    metadata = orjson.dumps({**image.metadata, "compression": compression}, option=orjson.OPT_SORT_KEYS)
    head = MAGIC + _LENGTH.pack(len(metadata)) + metadata
    body = orjson.dumps(image.body, option=orjson.OPT_SORT_KEYS)
    pages: list[bytes] = []
    places: dict[str, list[int]] = {}
    at = 0
    for name, memory in image.memory.items():
        page = _page(orjson.dumps(memory, option=orjson.OPT_SORT_KEYS), int(memory.get("ballast_bytes", 0)))
        places[name] = [at, len(page)]
        pages.append(page)
        at += len(page)
    meta = _framed(orjson.dumps({"places": places, "size": at}))
    if compression == FLATE:
        packed = zlib.compress(body + b"\0" + meta + b"".join(pages), 1)
        return {CHECKPOINT: head + _framed(_LENGTH.pack(len(body)) + packed)}
    content = _LENGTH.pack(len(body)) + body
    filled = content.ljust(state_bytes - len(head) - _LENGTH.size - _DIGEST_BYTES, b"\0")
    return {CHECKPOINT: head + _framed(filled), PAGES_META: meta, PAGES: b"".join(pages)}


def read_metadata(checkpoint: bytes) -> dict[str, str]:
    """Read the head of `checkpoint.img`, which the root's restore does.

    Raises:
        ImageError: as runsc says it.
    """
    if not checkpoint:
        raise ImageError("statefile cannot be empty")
    if checkpoint[: len(MAGIC)] != MAGIC:
        raise ImageError("reading metadata from statefile: bad magic header")
    begin = len(MAGIC) + _LENGTH.size
    (length,) = _LENGTH.unpack(checkpoint[len(MAGIC) : begin].ljust(_LENGTH.size, b"\xff"))
    try:
        metadata = orjson.loads(checkpoint[begin : begin + length])
    except ValueError:
        raise ImageError("reading metadata from statefile: invalid character '\\x00' in string literal") from None
    if not isinstance(metadata, dict) or not str(metadata.get("container_count", "")).isdecimal():
        raise ImageError("reading metadata from statefile: invalid character '\\x00' in string literal")
    return {str(key): str(value) for key, value in metadata.items()}


def decode(files: Mapping[str, bytes]) -> Image:
    """Read a whole image, which the last restore does.

    Memory that is damaged is not noticed: a container whose pages are not what they were gets None, and crashes.

    Raises:
        ImageError: as runsc says it.
    """
    checkpoint = files[CHECKPOINT]
    metadata = read_metadata(checkpoint)
    begin = len(MAGIC) + _LENGTH.size
    begin += _LENGTH.unpack(checkpoint[len(MAGIC) : begin])[0]
    if metadata.get("compression") == FLATE:
        content = _unframed(checkpoint[begin:], cut="header error: unexpected EOF:", flipped="hash mismatch")
        body, meta, pages = _inflated(content)
    else:
        content = _unframed(
            checkpoint[begin:],
            cut="error decoding from 0x26b: EOF:",
            flipped="error decoding from 0x75d: unreachable:",
        )
        (length,) = _LENGTH.unpack(content[: _LENGTH.size])
        body = content[_LENGTH.size : _LENGTH.size + length]
        meta, missing = files.get(PAGES_META, b""), PAGES not in files
        if missing or not meta:
            raise ImageError("header error: EOF:" + _GOROUTINE)
        pages = files[PAGES]
    return Image(metadata=metadata, body=orjson.loads(body), memory=_memory(meta, pages))


def _memory(meta: bytes, pages: bytes) -> dict[str, Any]:
    flipped = "error decoding from 0x2: unreachable:"
    index = orjson.loads(_unframed(meta, cut="error decoding from 0x2: EOF:", flipped=flipped))
    if len(pages) < index["size"]:
        raise ImageError("EOF")
    return {name: _content(pages[at : at + size]) for name, (at, size) in index["places"].items()}


def _page(content: bytes, ballast_bytes: int) -> bytes:
    """Fill up to whole pages, beginning with a digest of all of it: any flipped byte is the container's crash."""
    size = -(-(len(content) + 1 + _DIGEST_BYTES + ballast_bytes) // _PAGE_BYTES) * _PAGE_BYTES
    padded = (content + b"\0").ljust(size - _DIGEST_BYTES, b"\x5a")
    return hashlib.sha256(padded).digest() + padded


def _content(page: bytes) -> Any:
    digest, padded = page[:_DIGEST_BYTES], page[_DIGEST_BYTES:]
    if hashlib.sha256(padded).digest() != digest:
        return None
    return orjson.loads(padded.partition(b"\0")[0])


def _framed(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + hashlib.sha256(content).digest() + content


def _unframed(data: bytes, *, cut: str, flipped: str) -> bytes:
    """Return a framed content; a length that was flipped itself is taken for a file that was cut."""
    begin = _LENGTH.size + _DIGEST_BYTES
    if len(data) < begin or len(data) - begin < _LENGTH.unpack(data[: _LENGTH.size])[0]:
        raise ImageError(cut + _GOROUTINE)
    content = data[begin : begin + _LENGTH.unpack(data[: _LENGTH.size])[0]]
    if hashlib.sha256(content).digest() != data[_LENGTH.size : begin]:
        raise ImageError(flipped + _GOROUTINE)
    return content


def _inflated(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Take apart what flate has in one piece: body, index of pages, pages."""
    whole = zlib.decompress(content[_LENGTH.size :])
    (length,) = _LENGTH.unpack(content[: _LENGTH.size])
    body, rest = whole[:length], whole[length + 1 :]
    end = _LENGTH.size + _DIGEST_BYTES + _LENGTH.unpack(rest[: _LENGTH.size])[0]
    return body, rest[:end], rest[end:]
