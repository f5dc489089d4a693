"""The lines of one actor's containers, each told once, whole and labelled; all containers take turns, a piece each."""

from __future__ import annotations

from codecs import getincrementaldecoder
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from actors.codec import rfc3339
from supervisor.labelled_lines import Part, dropped, labelled, labelled_part, labels_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from actors.assignment import WorkerAssignment
    from supervisor.container_logs import ContainerLogs, Piece

PIECE_BYTES: Final = 1 << 15
"""What is read of a log at once."""
READS_MAX: Final = 32
"""So many logs are read side by side, so that reading them costs no more than reading one; that many pieces of all logs
together are in memory."""
LINES_MAX: Final = 500
"""So many lines are told at once, however short they are: the loop stands still meanwhile."""
LINE_BYTES_MAX: Final = 1 << 18
"""A line that is longer is told in parts."""


class Turns:
    """The turns of all containers: `reading` takes as many as there may be pieces, `telling` one."""

    def __init__(self) -> None:
        self.reading, self.telling = anyio.Semaphore(READS_MAX), anyio.Lock()


class LogRelay:
    """Tells what an actor's containers write from the first `follow` on.

    Args:
        assignment: whose lines they are.
        logs: the logs.
        write: where lines go.
        turns: those of all containers of the worker.
        now_s: the calendar.
    """

    def __init__(
        self,
        *,
        assignment: WorkerAssignment,
        logs: ContainerLogs,
        write: Callable[[bytes], Awaitable[None]],
        turns: Turns,
        now_s: Callable[[], float],
    ) -> None:
        self._assignment, self._logs, self._write = assignment, logs, write
        self._turns, self._now_s = turns, now_s
        self._next: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self._new: dict[str, int] = {}

    def follow(self, assignment: WorkerAssignment, size_of: Callable[[str], int]) -> None:
        """Label what comes with this; of a container that is new, tell what comes after what its file holds now."""
        self._assignment = assignment
        for each in assignment.containers:
            if each.name not in self._next:
                self._new.setdefault(each.name, size_of(each.name))

    async def begin(self) -> None:
        """Find where to begin with containers that are new; before their logs may be cut.

        Raises:
            OSError: it cannot be looked at.
        """
        while self._new:
            name, size_bytes = next(iter(self._new.items()))
            self._next[name] = await self._logs.offset_of(self._assignment.uid, name, size_bytes=size_bytes)
            self._new.pop(name)

    async def tell(self, *, to_the_end: bool) -> None:
        """Tell what is there: whole lines and, at an activation's end (`to_the_end`), a last one that has no end."""
        async with anyio.create_task_group() as group:
            for name in tuple(self._next):
                group.start_soon(partial(self._tell_container, name, to_the_end=to_the_end))

    async def _tell_container(self, name: str, *, to_the_end: bool) -> None:
        has_more = True
        while has_more:
            async with self._turns.reading:
                piece, at = await self._read(name, PIECE_BYTES), rfc3339(self._now_s())
                async with self._turns.telling:
                    if piece is not None and len(piece.data) == PIECE_BYTES and b"\n" not in piece.data:
                        piece = await self._read(name, LINE_BYTES_MAX)
                    has_more = piece is not None and await self._tell_piece(name, piece, at=at, to_the_end=to_the_end)

    async def _tell_piece(self, name: str, piece: Piece, *, at: str, to_the_end: bool) -> bool:
        """Tell the next lines of one container, if there are any; returns whether there may be more."""
        asked, labels = self._next[name], labels_of(self._assignment, name)
        lines = list[bytes]()
        if piece.offset_bytes > asked:
            self._parts.pop(name, None)
            lines.append(dropped(piece.offset_bytes - asked, labels, at=at))
        taken = 0
        for line, taken_bytes, is_last in _lines(piece, to_the_end=to_the_end):
            taken += taken_bytes
            part = self._part(name, is_last=is_last)
            lines.append(
                labelled(line, labels, at=at) if part is None else labelled_part(line, labels, at=at, part=part)
            )
        self._next[name] = piece.offset_bytes + taken
        if lines:
            await self._write(b"".join(lines))
        return bool(lines) and self._next[name] < piece.end_bytes

    async def _read(self, name: str, limit_bytes: int) -> Piece | None:
        """What comes next; None when it cannot be read, which whoever looks tells: no actor ends for its lines."""
        try:
            return await self._logs.read(
                self._assignment.uid, name, offset_bytes=self._next[name], limit_bytes=limit_bytes
            )
        except OSError:
            return None

    def _part(self, name: str, *, is_last: bool) -> Part | None:
        """Which part comes now; None for a line that has no parts."""
        number = self._parts.pop(name, 0) + 1
        if not is_last:
            self._parts[name] = number
        return None if is_last and number == 1 else Part(number=number, is_last=is_last)


def _lines(piece: Piece, *, to_the_end: bool) -> Iterator[tuple[bytes, int, bool]]:
    """The first lines of a piece: each without its end, how many bytes it takes, whether it is a line's last part."""
    *whole, rest = piece.data.split(b"\n", LINES_MAX)  # behind the last of so many, the rest is more than a line
    for line in whole:
        yield line, len(line) + 1, True
    if whole or not rest:
        return
    if len(rest) >= LINE_BYTES_MAX:
        part = _cut_at_character(rest)
        yield part, len(part), False
    elif to_the_end and piece.next_bytes == piece.end_bytes:
        yield rest, len(rest), True


def _cut_at_character(data: bytes) -> bytes:
    """As much of it as ends with a whole character, if it is UTF-8."""
    decoder = getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    waiting, _ = decoder.getstate()
    return data[: len(data) - len(waiting)]
