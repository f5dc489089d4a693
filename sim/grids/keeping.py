"""A folder of rows as Parquet: `parts/` has what is done, a file for each chunk, and `sweep.parquet` the whole sweep.

A part takes its name when it is whole, so that whatever ends a sweep leaves only whole rows. What stands in `parts/`
under a key is never run again, whichever sweep has made it.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.folders import files_in, make_folder
from supervisor.host.growing import growing

from .rows import COLUMNS, Row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .work import Point

PARTS: Final = "parts"
WHOLE: Final = "sweep.parquet"
SUFFIX: Final = ".parquet"
COMPRESSION: Final = "zstd"


@attrs.frozen
class Folder:
    """Where rows are kept. Use `opened`."""

    path: Path
    _arrow: Any
    _parquet: Any

    def done(self) -> dict[str, Path]:
        """The keys of all rows that are there, each with the first file that has it.

        Raises:
            ProblemError: UnreadableFile.
        """
        found: dict[str, Path] = {}
        for path in self._files():
            for key in self._read(path, ["key"]).column("key").to_pylist():
                found.setdefault(key, path)
        return found

    def rows(self, path: Path) -> tuple[Row, ...]:
        """The rows of a part.

        Raises:
            ProblemError: UnreadableFile.
        """
        table = self._read(path, list(COLUMNS)).to_pylist()
        return tuple(msgspec.convert({**row, "overrides": dict(row["overrides"])}, Row) for row in table)

    def keep(self, rows: Sequence[Row]) -> Path:
        """Keep the rows of a chunk; returns their file.

        Raises:
            ProblemError: OutputUnwritable.
        """
        name = hashlib.blake2b("".join(row.key for row in rows).encode(), digest_size=16).hexdigest()
        path = self.path / PARTS / f"{name}{SUFFIX}"
        plain = [{**msgspec.structs.asdict(row), "overrides": list(row.overrides.items())} for row in rows]
        self._write(self._arrow.Table.from_pylist(plain, schema=self._schema()), path)
        return path

    def finish(self, points: Mapping[str, Point]) -> Path:
        """Write the rows of these keys, in this order, as one file; what each is called is what its point is called.

        Raises:
            ProblemError: OutputUnwritable, UnreadableFile.
        """
        kept = self.done()
        # Only these: a part of older code may have other columns.
        paths = dict.fromkeys(kept[key] for key in points)
        tables = [self._read(path, list(COLUMNS)).cast(self._schema()) for path in paths]
        table = self._arrow.concat_tables(tables) if tables else self._schema().empty_table()
        places: dict[str, int] = {}
        for place, key in enumerate(table.column("key").to_pylist()):
            places.setdefault(key, place)
        table = table.take([places[key] for key in points])
        for name in ("trace", "config", "overrides"):
            values = [getattr(point, name) for point in points.values()]
            plain = [list(value.items()) if isinstance(value, dict) else value for value in values]
            field = self._schema().field(name)
            table = table.set_column(table.column_names.index(name), field, [self._arrow.array(plain, field.type)])
        self._write(table, self.path / WHOLE)
        return self.path / WHOLE

    def _files(self) -> list[Path]:
        return files_in(self.path / PARTS, SUFFIX)

    def _read(self, path: Path, columns: list[str]) -> Any:
        try:
            return self._parquet.read_table(path, columns=columns, partitioning=None)
        except (OSError, ValueError, KeyError) as error:  # those of Arrow are kinds of these
            message = f"{path} is no part of a sweep: {error}"
            hint = "Take the file away; its rows are made anew."
            raise ProblemError(
                Problem(
                    step=Step.SUPERVISE, reason=Reason.UNREADABLE_FILE, subject=str(path), message=message, hint=hint
                )
            ) from error

    def _write(self, table: Any, path: Path) -> None:
        try:
            with growing(path) as file:
                self._parquet.write_table(table, file, compression=COMPRESSION)
        except OSError as error:
            raise _unwritable(path, error) from error

    def _schema(self) -> Any:
        arrow = self._arrow
        types = {
            "string": arrow.string(),
            "int64": arrow.int64(),
            "double": arrow.float64(),
            "map of string to string": arrow.map_(arrow.string(), arrow.string()),
        }
        return arrow.schema([(name, types[said.partition(":")[0]]) for name, said in COLUMNS.items()])


def opened(path: Path) -> Folder:
    """A folder for rows, made where it is not there.

    Raises:
        ProblemError: SweepUnavailable: the extra is missing; OutputUnwritable.
    """
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        message = "rows are kept as Parquet, and greenroom was installed without its extra `sweep`"
        hint = "Install `greenroom[sweep]`, or leave --output away: then nothing is kept, and the table is printed."
        raise ProblemError(
            Problem(step=Step.SUPERVISE, reason=Reason.SWEEP_UNAVAILABLE, subject=str(path), message=message, hint=hint)
        ) from error
    try:
        make_folder(path / PARTS)
    except OSError as error:
        raise _unwritable(path, error) from error
    return Folder(path, arrow, parquet)


def _unwritable(path: Path, error: OSError) -> ProblemError:
    message = f"{path} cannot be written: {error.strerror or error}"
    hint = "Is its disk full, or read-only? What was made before is kept: the same command goes on from there."
    return ProblemError(
        Problem(step=Step.SUPERVISE, reason=Reason.OUTPUT_UNWRITABLE, subject=str(path), message=message, hint=hint)
    )
