"""Tables with commas (RFC 4180), row by row, and what is wrong with rows: all of it is told, up to a bound."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Final

import attrs

from sim.traces.records import LABEL_PATTERN, NAME_PATTERN
from sim.traces.streams import at_line, lines, opened
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from statemachine.wording import file_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from sim.traces.records import Record, Scalar

TOLD_MAX: Final = 100
"""Bad rows that are told; more are counted."""
AMOUNT_MAX: Final = 1 << 40
SECONDS_MAX: Final = 1e11
"""Of a time or a duration in a table."""
_NOTHING: Final = frozenset({"", "nan", "NaN", "None", "null"})
_NAME: Final = re.compile(NAME_PATTERN)
_LABEL: Final = re.compile(LABEL_PATTERN)
_WHOLE: Final = re.compile(r"[0-9]{1,15}(?:\.0{1,6})?")
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")


class BadRowError(ValueError):
    """Raised where a row cannot be used; the message says why."""


@attrs.define
class BadRows:
    """The rows that cannot be used.

    Attributes:
        are_skipped: whether the rest is used all the same.
        count: how many there are.
        told: a problem for each of the first ones, in their order.
    """

    are_skipped: bool = False
    count: int = 0
    told: list[Problem] = attrs.Factory(list)

    def add(self, path: Path, number: int, message: str) -> None:
        """Another one.

        Raises:
            ProblemError: InvalidRow, for each of as many as are told, unless they are skipped.
        """
        self.count += 1
        if len(self.told) < TOLD_MAX:
            self.told.append(at_line(path, number, message, reason=Reason.INVALID_ROW))
        elif not self.are_skipped:
            self.refuse()

    def refuse(self) -> None:
        """Once all rows were read.

        Raises:
            ProblemError: InvalidRow, for each row that is told, if there are any and they are not skipped.
        """
        if self.told and not self.are_skipped:
            # What to do about it need be told but once.
            problems = [self.told[0], *(attrs.evolve(each, hint="") for each in self.told[1:])]
            if self.count > len(problems):
                message = f"there are more bad rows than the {len(problems)} that are told; the rest was not read"
                problems.append(
                    Problem(step=Step.SUPERVISE, reason=Reason.INVALID_ROW, subject="rows", message=message, hint="")
                )
            raise ProblemError(*problems)

    def judged(self, records: Iterable[Record], notes: dict[str, Scalar]) -> Iterator[Record]:
        """The records, which are given when all rows were read; the first of them is not, if rows are bad.

        Raises:
            ProblemError: as `refuse`.
        """
        rest = iter(records)
        first = next(rest, None)
        self.refuse()
        notes["badRowsSkipped"] = self.count
        if first is not None:
            yield first
            yield from rest


@attrs.frozen
class Row:
    """One row of a table, its cells by the names of their columns; what it says is asked for cell by cell."""

    number: int
    cells: dict[str, str]

    def text(self, column: str) -> str | None:
        """A word that can be printed; None where the cell is empty.

        Raises:
            BadRowError: it cannot.
        """
        cell = self.cells[column]
        if cell in _NOTHING:
            return None
        if not _LABEL.match(cell):
            raise BadRowError(f"{column} is {cell!r:.80}, which is not 1 to 128 printable ASCII characters")
        return cell

    def name(self, column: str) -> str:
        """What an actor or a worker can be called.

        Raises:
            BadRowError: it is not.
        """
        cell = self.cells[column]
        if not _NAME.match(cell):
            allowed = "1 to 63 letters, digits, dots, dashes and underscores"
            raise BadRowError(f"{column} is {cell!r:.80}, which is not {allowed}")
        return cell

    def whole(self, column: str, *, most: int = AMOUNT_MAX) -> int:
        """A whole number from 0 on.

        Raises:
            BadRowError: it is none.
        """
        cell = self.cells[column]
        if not _WHOLE.fullmatch(cell) or int(cell.partition(".")[0]) > most:
            raise BadRowError(f"{column} is {cell!r:.80}, which is no whole number from 0 to {most}")
        return int(cell.partition(".")[0])

    def seconds(self, column: str) -> float | None:
        """Seconds from 0 on; None where the cell is empty.

        Raises:
            BadRowError: it is no such number.
        """
        cell = self.cells[column]
        if cell in _NOTHING:
            return None
        if not _NUMBER.fullmatch(cell) or float(cell) > SECONDS_MAX:
            raise BadRowError(f"{column} is {cell!r:.80}, which is no number of seconds from 0 to {SECONDS_MAX:.0f}")
        return float(cell)


def rows(path: Path, columns: tuple[str, ...], bad: BadRows) -> Iterator[Row]:
    """The rows of a table that has these columns, among others, in any order. A row's number is that of its first line.

    Raises:
        ProblemError: UnreadableFile; InvalidRow, also when bad rows are skipped: the columns are not there, or the
            file is damaged.
    """
    with opened(path) as file:
        table = _Texts(lines(file, path, reason=Reason.INVALID_ROW))
        reader = csv.reader(table, strict=True)
        named: list[str] | None = None
        while True:
            number = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                cells = []
                table.fault = table.fault or str(error)
            if cells is None:
                break
            fault, table.fault = table.fault, ""
            if named is None:
                named = _columns(path, cells, columns, fault)
            elif fault or len(cells) != len(named):
                if fault or cells:  # an empty line is nothing
                    reach = f", with all up to line {reader.line_num}" if reader.line_num > number else ""
                    message = fault or f"it has {len(cells)} cells, and there are {len(named)} columns"
                    bad.add(path, number, f"{message}{reach}")
            else:
                yield Row(number, dict(zip(named, cells, strict=True)))
        if named is None:
            _columns(path, [], columns, "")


def _columns(path: Path, cells: list[str], wanted: tuple[str, ...], fault: str) -> list[str]:
    missing = [column for column in wanted if column not in cells]
    again = [column for column in wanted if cells.count(column) > 1]
    if missing or again or fault:
        what = "stand there twice" if again else "are not there; this is another kind of file"
        message = fault or f"the columns {', '.join(again or missing)} {what}"
        raise ProblemError(at_line(path, 1, message, reason=Reason.INVALID_ROW))
    return cells


class _Texts:
    """Lines of bytes as lines of text for the reader of tables; what cannot be text is empty, and a fault."""

    def __init__(self, raw: Iterator[bytes]) -> None:
        self.fault = ""
        self._raw = raw

    def __iter__(self) -> _Texts:
        return self

    def __next__(self) -> str:
        line = next(self._raw).removeprefix(b"\xef\xbb\xbf")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text, self.fault = "", "it is not UTF-8"
        if "\0" in text:
            text, self.fault = "", "it has a NUL in it"
        return f"{text}\n"


def label(path: Path) -> str:
    """A file's name for the header of a trace, without where it lies."""
    return file_label(path.name)
