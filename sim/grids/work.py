"""What is to be done, in the form in which it goes to other processes and to other machines.

A `Point` is one setting of everything but the seed; a `Run` is a point and a seed, with the key under which its row is
kept; a `Chunk` is some runs for one process.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import posixpath
import zlib
from typing import Final

import msgspec
from msgspec import Struct

import actors
import sim
import statemachine
import supervisor
from supervisor.host.folders import source_digest

from .rows import Row

FORMAT: Final = 1
"""Of rows and keys: another one makes other keys."""
KEY_BYTES: Final = 16


class Kind(enum.StrEnum):
    """What a run is of."""

    REPLAY = "replay"
    CHAOS = "chaos"


class Point(Struct, frozen=True, kw_only=True):
    """One setting of everything but the seed.

    Attributes:
        number: its place in the grid.
        kind: what its runs are of.
        trace: as it was named; None for chaos.
        place: the trace's file; None for chaos.
        digest: of that file's bytes.
        engine: of a replay; chaos has `faithful` always.
        config: as it was named.
        workers: how many there are instead of the trace's own; None leaves these.
        overrides: what the axes of the grid say, in the words that they were given in.
        settings: the whole config, in the form of its kind.
    """

    number: int
    kind: Kind
    trace: str | None
    place: str | None
    digest: str | None
    engine: str
    config: str
    workers: int | None
    overrides: dict[str, str]
    settings: bytes

    def key(self, seed: int, code: str) -> str:
        """What a run of it is kept under: whatever could make its row another one is in it."""
        whole = (FORMAT, code, self.kind, self.digest, self.engine, self.workers, self.settings, seed)
        return hashlib.blake2b(msgspec.msgpack.encode(whole), digest_size=KEY_BYTES).hexdigest()


class Run(Struct, frozen=True):
    """One row to be: the number of its point, its seed, its key."""

    point: int
    seed: int
    key: str


class Chunk(Struct, frozen=True, kw_only=True):
    """Some runs for one process, with their points, and the digest of the code that is to make them."""

    code: str
    points: tuple[Point, ...]
    runs: tuple[Run, ...]

    def packed(self) -> str:
        """As an argument of a command."""
        return base64.b64encode(zlib.compress(msgspec.msgpack.encode(self))).decode()


class Refusal(Struct, frozen=True, kw_only=True):
    """A problem, as a part tells it: the words of `statemachine.problem.Problem`."""

    step: str
    reason: str
    subject: str
    message: str
    hint: str
    detail: str


class Told(Struct, frozen=True, kw_only=True):
    """What came of a chunk: all its rows, or why it has none."""

    rows: tuple[Row, ...] = ()
    refusal: Refusal | None = None

    def packed(self) -> bytes:
        """As a part writes it."""
        return zlib.compress(msgspec.msgpack.encode(self))


def chunk_of(packed: str) -> Chunk:
    """The chunk of an argument."""
    return msgspec.msgpack.decode(zlib.decompress(base64.b64decode(packed)), type=Chunk)


def told_of(packed: bytes) -> Told:
    """What a part has written."""
    return msgspec.msgpack.decode(zlib.decompress(packed), type=Told)


def kept_name(place: str, trace_digest: str) -> str:
    """What a trace is called where others are kept beside it: the end of a name says how it is compressed."""
    return f"{trace_digest}{posixpath.splitext(place)[1]}"


def code_digest() -> str:
    """Of all sources that a run rests on: a row that other code has made is not this code's."""
    return source_digest((statemachine, actors, supervisor, sim))
