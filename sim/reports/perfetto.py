"""Every transition of a replay as a trace for Perfetto (ui.perfetto.dev): a track for each actor and each worker.

An actor's track has a slice for each stay in a state, a worker's has its troubles, and below it how many actors are on
it and run. What is kept while the file grows is a line for each actor that has not ended. Names stand once in it.

Written by hand: it is two hundred lines, as fast as the package `perfetto` with its protobuf, and a worker's image need
not have these two. Tests read the file with them.

Source: github.com/google/perfetto, protos/perfetto/trace/: trace_packet.proto, track_event/track_event.proto,
track_event/track_descriptor.proto, interned_data/interned_data.proto; the numbers of fields are from there.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import attrs

from sim.reports.wire import block, number, text
from sim.traces.streams import made
from statemachine.states import FINAL, RESTING, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sim.replay.results import MoveSink
    from statemachine.reasons import Reason

ACTORS: Final = 1
WORKERS: Final = 2
"""The tracks above all others."""
_SEQUENCE: Final = 1
_CLEARED: Final = 1
_NEEDED: Final = 2
"""TracePacket.SequenceFlags."""
BEGIN: Final = 1
END: Final = 2
INSTANT: Final = 3
COUNTER: Final = 4
"""TrackEvent.Type."""
_UNIT_COUNT: Final = 2
_LEXICOGRAPHIC: Final = 1
_NS: Final = 1_000_000_000
_AT_ONCE_BYTES: Final = 1 << 18
_REST: Final = frozenset(RESTING)


@contextmanager
def opened(path: Path) -> Iterator[MoveSink]:
    """A file that is there when the replay is at its end; a name with .gz at its end is compressed.

    Raises:
        ProblemError: OutputUnwritable.
    """
    with made(path) as write:
        writer = Writer(write)
        yield writer
        writer.close()


@attrs.define(eq=False)
class _Actor:
    """One that has not ended: its track, the worker on which its latest life is, and whether a slice is open."""

    track: int
    worker: str
    is_open: bool = False
    end: bytes = attrs.field(init=False)
    """Of a slice: the same each time."""

    def __attrs_post_init__(self) -> None:
        self.end = _event(END, self.track)


@attrs.define(eq=False)
class _Worker:
    """One that was seen: its track, those below it, and how many actors are on it and run."""

    track: int
    on_it_track: int
    running_track: int
    on_it: int = 0
    running: int = 0


class Writer:
    """Writes what it hears; a MoveSink."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._at_ns = -1
        self._tracks = WORKERS
        self._actors: dict[str, _Actor] = {}
        self._lives: dict[tuple[str, str], State] = {}
        self._workers: dict[str, _Worker] = {}
        self._names: dict[tuple[int, str], int] = {}
        self._begun: dict[State, bytes] = {}
        self._told: dict[tuple[str, Reason | None], bytes] = {}
        self._tail = number(10, _SEQUENCE) + number(13, _NEEDED)
        self._head = b""
        self._now(0.0)
        self._packet(number(8, 0), number(10, _SEQUENCE), number(13, _CLEARED))
        self._descriptor(ACTORS, "actors", child_ordering=_LEXICOGRAPHIC)
        self._descriptor(WORKERS, "workers", child_ordering=_LEXICOGRAPHIC)

    def moved(  # noqa: PLR0917 - a MoveSink's
        self,
        at_s: float,
        worker: str,
        actor: str,
        before: State | None,
        event: str,
        after: State,
        reason: Reason | None,
    ) -> None:
        """An actor took an event."""
        self._now(at_s)
        here = self._workers.get(worker) or self._new_worker(worker)
        known = self._actors.get(actor)
        if known is None:
            known = self._actors[actor] = _Actor(self._next_track(), worker)
            self._descriptor(known.track, actor, parent=ACTORS)
        if before is None:
            known.worker = worker
        about = self._told.get((event, reason)) or self._about(event, reason)
        about += self._worker_of(worker, known, before)
        if before is after or worker != known.worker:
            # What a worker does with a life that has gone on elsewhere is no stay of the actor.
            self._event(INSTANT, known.track, number(10, self._name(2, event if before is after else after)), about)
        else:
            self._stays(known, after, about)
        self._count(here, (worker, actor), after)
        if reason is not None:
            told = block(4, number(1, self._name(3, "actor")), text(6, actor))
            self._event(INSTANT, here.track, number(10, self._name(2, reason)), told)
        if after in FINAL and worker == known.worker:
            del self._actors[actor]

    def close(self) -> None:
        """Nothing comes any more: what lasts, lasts until now."""
        for known in self._actors.values():
            if known.is_open:
                self._packet(self._head, known.end)
        self._actors.clear()
        self._flush()

    # ---- tracks

    def _stays(self, known: _Actor, state: State, about: bytes) -> None:
        """One slice ends and the next one begins."""
        if known.is_open:
            self._packet(self._head, known.end)
        known.is_open = state not in FINAL
        if known.is_open:
            self._event(BEGIN, known.track, self._stay(state), about)

    def _count(self, here: _Worker, life: tuple[str, str], state: State) -> None:
        """How many are on a worker now, and run."""
        before = self._lives.get(life)
        if state in FINAL:
            self._lives.pop(life, None)
        else:
            self._lives[life] = state
        on_it = (state not in FINAL) - (before is not None)
        running = (state is State.RUNNING) - (before is State.RUNNING)
        if on_it:
            here.on_it += on_it
            self._event(COUNTER, here.on_it_track, number(30, here.on_it))
        if running:
            here.running += running
            self._event(COUNTER, here.running_track, number(30, here.running))

    def _new_worker(self, name: str) -> _Worker:
        found = self._workers[name] = _Worker(self._next_track(), self._next_track(), self._next_track())
        self._descriptor(found.track, name, parent=WORKERS)
        counter = block(8, number(3, _UNIT_COUNT))
        self._descriptor(found.on_it_track, "actors", counter, parent=found.track)
        self._descriptor(found.running_track, "running", counter, parent=found.track)
        return found

    def _next_track(self) -> int:
        self._tracks += 1
        return self._tracks

    # ---- packets

    def _descriptor(
        self, track: int, name: str, *more: bytes, parent: int | None = None, child_ordering: int | None = None
    ) -> None:
        parts = [number(1, track), text(2, name), *more]
        if parent is not None:
            parts.append(number(5, parent))
        if child_ordering is not None:
            parts.append(number(11, child_ordering))
        self._packet(self._head, block(60, *parts))

    def _event(self, kind: int, track: int, *more: bytes) -> None:
        self._packet(self._head, _event(kind, track, *more))

    def _now(self, at_s: float) -> None:
        """Of all packets until the next one; time does not fall."""
        at_ns = round(at_s * _NS)
        if at_ns > self._at_ns:
            self._at_ns = at_ns
            self._head = number(8, at_ns) + self._tail

    def _packet(self, *parts: bytes) -> None:
        packet = block(1, *parts)
        self._pieces.append(packet)
        self._bytes += len(packet)
        if self._bytes >= _AT_ONCE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._write(b"".join(self._pieces))
        self._pieces, self._bytes = [], 0

    # ---- names

    def _name(self, kind: int, name: str) -> int:
        """The number of a name: 1 of a category, 2 of an event, 3 of an annotation, 29 of a text in one."""
        found = self._names.get((kind, name))
        if found is None:
            found = self._names[kind, name] = len(self._names) + 1
            self._packet(self._head, block(12, block(kind, number(1, found), text(2, name))))
        return found

    def _stay(self, state: State) -> bytes:
        """The name of a slice and its category."""
        found = self._begun.get(state)
        if found is None:
            category = "rest" if state in _REST else "step"
            found = self._begun[state] = number(10, self._name(2, state)) + number(3, self._name(1, category))
        return found

    def _about(self, event: str, reason: Reason | None) -> bytes:
        """Which event led to it, and its reason."""
        told = block(4, number(1, self._name(3, "event")), number(17, self._name(29, event)))
        if reason is not None:
            told += block(4, number(1, self._name(3, "reason")), number(17, self._name(29, reason)))
        self._told[event, reason] = told
        return told

    def _worker_of(self, worker: str, known: _Actor, before: State | None) -> bytes:
        """Where it is, where that is not what was told last."""
        if before is not None and worker == known.worker:
            return b""
        return block(4, number(1, self._name(3, "worker")), text(6, worker))


def _event(kind: int, track: int, *more: bytes) -> bytes:
    """A TrackEvent."""
    return block(11, number(9, kind), number(11, track), *more)
