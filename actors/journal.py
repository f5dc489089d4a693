"""The journal of one actor: what happened, in order, so that a restarted supervisor knows what it left.

A file of JSON lines. The first line of a life, and the only one after a compaction, is a base: the machine's whole
memory, and since when the actor is in its state; so is one after an update or a restart, which changes memory without
an event. Each transition follows as `{v, seq, at, mono_s, bootId, from, event, to, commands}`; marks inside a step as
`{v, seq, at, progress: {step, mark}}`. Replaying base and events through the machine gives the memory again. Each line
has the generation whose wish was acted on: the assignment is on disk before its wish is, and a crash may come between.

A transition that could not be written leaves a gap, over which nothing later would follow: the next line that can be
written is a base.

Durable (fdatasync) at admission, at SnapshotProven and on entering a resting or final state; other lines reach the disk
in their own time, since what they tell is undone after a crash anyway. A torn last line is dropped.
Source: DESIGN, "JSON shapes".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import orjson

from actors.codec import CodecError, epoch_s, loads, plain, rfc3339, structure
from statemachine.actor import Actor
from statemachine.commands import Command
from statemachine.events import Event, SnapshotProven
from statemachine.machine import Ignored, Refused, Transition, step
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, RESTING

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files, Wall

FORMAT: Final = 1
COMPACT_OVER_LINES: Final = 200
"""At rest, a journal longer than this is replaced by its base."""
LIMIT_BYTES: Final = 32 << 20


@attrs.frozen(kw_only=True)
class Mark:
    """A progress mark inside a step."""

    step: Step
    mark: str


@attrs.frozen(kw_only=True)
class Replayed:
    """What a journal tells.

    Attributes:
        actor: the machine's memory after the last whole line.
        marks: the marks since the last transition.
        seq: number of the last line.
        lines: how many whole lines there are.
        torn_bytes: length of a torn last line that was dropped.
        boot_id: boot id of the last line.
        since_s: when it came to its state, seconds since 1970 UTC.
        generation: whose wish was acted on last; 0 when an earlier version wrote it, which did not say so.
    """

    actor: Actor
    marks: tuple[Mark, ...]
    seq: int
    lines: int
    torn_bytes: int
    boot_id: str
    since_s: float
    generation: int = 0


class Journal:
    """Appends to one actor's journal: transitions from the actor's loop, marks from its running step.

    Attributes:
        generation: whose wish is acted on, from the next line on.
    """

    def __init__(
        self, *, files: Files, wall: Wall, path: Path, generation: int = 0, seq: int = 0, lines: int = 0
    ) -> None:
        """`generation`, `seq` and `lines` go on from a replayed journal."""
        self.generation = generation
        self._files, self._wall, self._path = files, wall, path
        self._seq, self._lines = seq, lines
        self._boot_id = wall.boot_id()
        self._has_gap = False
        # A mark and a transition may come at once: on disk they stand in the order of their numbers.
        self._turn = anyio.Lock(fast_acquire=True)  # whoever has it lets others run while the file is written

    async def begin(self, actor: Actor, *, since_s: float) -> None:
        """Replace the journal by a base with this memory, durably: at admission and at a compaction.

        Raises:
            OSError: it cannot be written; the old journal stands.
        """
        async with self._turn:
            await self._files.replace(self._path, self._line(_base(actor, since_s)))
            self._lines, self._has_gap = 1, False

    async def rebase(self, actor: Actor, *, since_s: float) -> None:
        """Append a base with this memory, durably: after an update, and on a restart; the story before it stays.

        Raises:
            OSError: it cannot be written; the next line is a base then.
        """
        async with self._turn:
            await self._append(_base(actor, since_s), durably=True)

    async def record(self, before: Actor, event: Event, transition: Transition, *, since_s: float) -> None:
        """Append a transition, durably where it must be; over a gap, append the memory that it leads to.

        Raises:
            OSError: it cannot be written; the next line is a base then.
        """
        content = {
            "from": str(before.state),
            "event": plain(event, Event),
            "to": str(transition.actor.state),
            "commands": [plain(command, Command) for command in transition.commands],
        }
        durably = isinstance(event, SnapshotProven) or transition.actor.state in RESTING | FINAL
        async with self._turn:
            if self._has_gap:
                content = _base(transition.actor, since_s)
            await self._append(content, durably=durably)

    async def mark(self, mark: Mark) -> None:
        """Append a progress mark.

        Raises:
            OSError: it cannot be written; that leaves no gap, since a mark changes no memory.
        """
        async with self._turn:
            await self._files.append(self._path, self._line({"progress": {"step": str(mark.step), "mark": mark.mark}}))
            self._lines += 1

    async def compact(self, actor: Actor, *, since_s: float) -> None:
        """At rest: replace a long journal by its base; a short one stays, it is the story of the actor.

        Raises:
            OSError: it cannot be written; the long one stands.
        """
        if self._lines > COMPACT_OVER_LINES:
            await self.begin(actor, since_s=since_s)

    async def _append(self, content: dict[str, Any], *, durably: bool) -> None:
        append = self._files.append_durably if durably else self._files.append
        # Until it is known to be whole: also who is cancelled in between does not know.
        self._has_gap = True
        await append(self._path, self._line(content))
        self._has_gap = False
        self._lines += 1

    def _line(self, content: dict[str, Any]) -> bytes:
        self._seq += 1
        head = {
            "v": FORMAT,
            "seq": self._seq,
            "at": rfc3339(self._wall.now_s()),
            "mono_s": round(anyio.current_time(), 6),
            "bootId": self._boot_id,
            "generation": self.generation,
        }
        return orjson.dumps({**head, **content}) + b"\n"


def _base(actor: Actor, since_s: float) -> dict[str, Any]:
    return {"base": plain(actor), "since": rfc3339(since_s)}


def replay(data: bytes, *, subject: str) -> Replayed:
    """The machine's memory from a journal's bytes.

    Args:
        data: the whole file.
        subject: the file's name, for problems.

    Raises:
        ProblemError: StateCorrupt when a whole line is not a journal line or does not follow from those before it;
            NewerFormat when a line was written by a newer version.
    """
    *whole, torn = data.split(b"\n")
    actor: Actor | None = None
    marks: tuple[Mark, ...] = ()
    head, since_s = _Head(), 0.0
    for number, raw in enumerate(whole, start=1):
        line = _parse(raw, subject=subject, number=number)
        head = _structured(line, _Head, subject=subject, number=number)
        if "progress" in line:
            marks = (*marks, _structured(line["progress"], Mark, subject=subject, number=number))
            continue
        marks = ()
        if "base" in line:
            actor = _structured(line["base"], Actor, subject=subject, number=number)
            since_s = epoch_s(head.since or head.at)
        elif actor is None:
            raise _corrupt(subject, number, "the first line is not a base")
        else:
            before, actor = actor, _follow(actor, line, subject=subject, number=number)
            since_s = since_s if before.state is actor.state else epoch_s(head.at)
    if actor is None:
        raise _corrupt(subject, 1, "there is no whole line")
    return Replayed(
        actor=actor,
        marks=marks,
        seq=head.seq,
        lines=len(whole),
        torn_bytes=len(torn),
        boot_id=head.boot_id,
        since_s=since_s,
        generation=head.generation,
    )


@attrs.frozen(kw_only=True)
class _Head:
    """What every line begins with, as far as it is read again."""

    seq: int = 0
    at: str = ""
    boot_id: str = ""
    generation: int = 0
    since: str = ""


def _parse(raw: bytes, *, subject: str, number: int) -> dict[str, Any]:
    try:
        line = loads(raw)
    except CodecError as error:
        raise _corrupt(subject, number, str(error)) from error
    if not isinstance(line, dict) or type(line.get("v")) is not int:
        raise _corrupt(subject, number, "it is not an object with a format version")
    if line["v"] < 1:
        raise _corrupt(subject, number, f"there is no format {line['v']}")
    if line["v"] > FORMAT:
        raise ProblemError(
            Problem(
                step=Step.RECOVER,
                reason=Reason.NEWER_FORMAT,
                subject=subject,
                message=f"line {number} has format {line['v']}; this version reads up to {FORMAT}",
            )
        )
    return line


def _follow(actor: Actor, line: dict[str, Any], *, subject: str, number: int) -> Actor:
    event: Event = _structured(line.get("event"), Event, subject=subject, number=number)
    match step(actor, event):
        case Transition(actor=new) if line.get("to") == new.state and line.get("from") == actor.state:
            return new
        case Transition() | Ignored() | Refused():
            detail = f"{type(event).__name__} does not lead from {actor.state} to {line.get('to')}"
            raise _corrupt(subject, number, detail)


def _structured(value: Any, cls: Any, *, subject: str, number: int) -> Any:
    try:
        return structure(value, cls)
    except CodecError as error:
        raise _corrupt(subject, number, str(error)) from error


def _corrupt(subject: str, number: int, what: str) -> ProblemError:
    return ProblemError(
        Problem(
            step=Step.RECOVER,
            reason=Reason.STATE_CORRUPT,
            subject=subject,
            message=f"line {number} of the journal cannot be used: {what}",
        )
    )
