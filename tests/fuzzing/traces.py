"""The fuzz target for traces: files of them, and what is imported as one.

The first byte says what an input is: a trace, a table of pods, of nodes or of requests, a journal.
"""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import PosixPath
from typing import TYPE_CHECKING, Any, Final

from sim.traces.importing.azure_llm import COLUMNS, AzureLlm, import_azure_llm
from sim.traces.importing.journals import Journals, import_journals
from sim.traces.importing.openb import NODE_COLUMNS, POD_COLUMNS, OpenB, import_openb
from sim.traces.importing.rows import BadRows
from sim.traces.reading import read_trace
from sim.traces.shipped import shipped
from sim.traces.writing import as_bytes
from statemachine.problem import ProblemError
from tests.formats.recording import DIRECTORY
from tests.fuzzing.promises import Target, hold, hold_tellable, refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from sim.traces.records import Header, Record

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_RELEASES: Final = ("0.1.0", "current")


class MemoryFile(PosixPath):
    """A file that is only in memory."""

    data = b""

    def open(self, *_arguments: Any, **_more: Any) -> Any:
        """Its bytes."""
        return io.BytesIO(self.data)


def file(name: str, data: bytes) -> Path:
    made = MemoryFile(name)
    made.data = data
    return made


def check_traces(data: bytes) -> None:
    """It is refused, or made to a trace that is read again as it was."""
    kind, content = data[0] % (len(_KINDS) + 1) if data else 0, data[1:]
    if kind == 0:
        _check_trace(content)
        return
    make = _KINDS[kind - 1]
    first = refused(lambda: _whole(make(content, BadRows())))
    if first is not None:
        _check_again(*first)
    bad = BadRows(are_skipped=True)
    second = refused(lambda: _whole(make(content, bad)))
    for problem in bad.told:
        hold_tellable(ProblemError(problem))
    hold(bad.count >= len(bad.told), "what is told is counted")
    hold(first is None or (second == first and not bad.count), "without a bad row there is nothing to skip")
    if second is not None:
        _check_again(*second)


def _check_trace(content: bytes) -> None:
    for name in ("t.jsonl", "t.jsonl.gz", "t.jsonl.zst"):
        read = refused(lambda name=name: _whole(read_trace(file(name, content))))  # type: ignore[misc]
        if read is not None:
            _check_again(*read)


def _check_again(header: Header, records: list[Record]) -> None:
    again = _whole(read_trace(file("t.jsonl", as_bytes(header, records))))
    hold(again == (header, records), "what is written is read again")


def _whole(made: tuple[Header, Iterator[Record]]) -> tuple[Header, list[Record]]:
    header, records = made
    return header, list(records)


def _pods(data: bytes, bad: BadRows) -> tuple[Header, Iterator[Record]]:
    return import_openb([file("pods.csv", data)], OpenB(), bad)


def _nodes(data: bytes, bad: BadRows) -> tuple[Header, Iterator[Record]]:
    none = file("pods.csv", ",".join(POD_COLUMNS).encode())
    return import_openb([none], OpenB(nodes=file("nodes.csv", data)), bad)


def _requests(data: bytes, bad: BadRows) -> tuple[Header, Iterator[Record]]:
    return import_azure_llm([file("requests.csv", data)], AzureLlm(actors=3), bad)


def _journal(data: bytes, bad: BadRows) -> tuple[Header, Iterator[Record]]:
    return import_journals([file("a1.journal", data)], Journals(), bad)


_KINDS: Final = (_pods, _nodes, _requests, _journal)


def _seeds() -> Iterable[tuple[str, bytes]]:
    mixed = shipped("mixed")
    if mixed is not None:
        lines = mixed.read_bytes().splitlines(keepends=True)
        yield "trace", b"\0" + b"".join((*lines[:6], *lines[100:106], *lines[-3:]))
    every = (
        b'{"kind":"GreenroomTrace","v":1,"source":"x","seed":null,"notes":{"a":1.5}}\n'
        b'{"event":"worker-add","at_s":0,"worker":"w","gpus":1,"model":"T4","pool":"p","cpu_milli":1,"memory_bytes":2}\n'
        b'{"event":"assignment","at_s":0,"actor":"a","containers":[{"name":"m","gpus":1}],"for_s":1.5,"class":"c"}\n'
        b'{"event":"resume","at_s":1,"actor":"a","busy_s":2}\n{"event":"suspend","at_s":2,"actor":"a"}\n'
        b'{"event":"terminate","at_s":3,"actor":"a"}\n{"event":"fault","at_s":3,"fault":"f","args":{"x":true}}\n'
        b'{"event":"worker-drain","at_s":4,"worker":"w"}\n{"event":"worker-remove","at_s":4,"worker":"w"}\n'
    )
    yield "every-record", b"\0" + every
    yield "gzip", b"\0" + gzip.compress(every, mtime=0)
    yield "zstd", b"\0" + zstd.compress(every)
    pods = ("p1,12000,16384,1,460,,LS,Running,0,9,0", "p2,1,1,8,1000,V100M16|V100M32,BE,Pending,3,4,", "p3,x")
    yield "pods", b"\1" + "\n".join((",".join(POD_COLUMNS), *pods)).encode()
    yield "nodes", b"\2" + "\n".join((",".join(NODE_COLUMNS), "n1,64000,262144,2,P100", "n2,1,1,0,nan")).encode()
    requests = ("2023-11-16 18:17:03.9799600,4808,10", "2024-05-10 00:00:00.009930+00:00,1,2", '"x,1,2')
    yield "requests", b"\3" + "\r\n".join((",".join(COLUMNS), *requests)).encode()
    for release in _RELEASES:
        lines = (DIRECTORY / release / "journal.jsonl").read_bytes().splitlines(keepends=True)
        yield f"journal-{release}", b"\4" + b"".join((lines[0], *lines[6:9], lines[15], lines[18]))


TRACES: Final = Target(
    name="traces",
    check=check_traces,
    seeds=_seeds,
    words=(
        "event", "at_s", "worker-add", "worker-remove", "worker-drain", "assignment", "suspend", "resume", "terminate",
        "fault", "worker", "actor", "containers", "name", "gpus", "model", "memory_bytes", "cpu_milli", "generation",
        "for_s", "class", "busy_s", "args", "GreenroomTrace", "kind", "v", "source", "seed", "notes", *POD_COLUMNS,
        *NODE_COLUMNS, *COLUMNS, "Pending", "nan", "1e999", "\\x1f\\x8b", "base", "since", "mono_s", "SuspendRequested",
        "DrainRequested", "Activate",
    ),
)  # fmt: skip
