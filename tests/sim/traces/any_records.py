"""Any record, for hypothesis; and tables with rows as they should be and as they should not."""

import string
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from sim.traces.records import (
    AT_S_MAX,
    GPUS_MAX,
    Assignment,
    Container,
    FaultRecord,
    Header,
    Record,
    Resume,
    Suspend,
    Terminate,
    WorkerAdd,
    WorkerDrain,
    WorkerRemove,
)

LETTERS = string.ascii_letters + string.digits
NAMES = st.builds(lambda first, rest: first + rest, st.sampled_from(LETTERS), st.text(LETTERS + "._-", max_size=62))
LABELS = st.text([chr(code) for code in range(32, 127)], min_size=1, max_size=128)
SECONDS = st.floats(0, AT_S_MAX, allow_nan=False)
GPUS = st.integers(0, GPUS_MAX)
AMOUNTS = st.integers(0, 1 << 53)
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=20)
CONTAINERS = st.lists(
    st.builds(Container, name=NAMES, gpus=GPUS), min_size=1, max_size=4, unique_by=lambda each: each.name
).map(tuple)
ARGUMENTS = st.dictionaries(st.text(max_size=10).map(lambda name: f"{name}."), SCALARS, max_size=3)
"""Of faults; a name that ends in `_s` would want seconds."""


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        WorkerAdd,
        at_s=SECONDS,
        worker=NAMES,
        gpus=GPUS,
        model=optional(LABELS),
        pool=optional(LABELS),
        cpu_milli=optional(AMOUNTS),
        memory_bytes=optional(AMOUNTS),
    ),
    st.builds(WorkerRemove, at_s=SECONDS, worker=NAMES),
    st.builds(WorkerDrain, at_s=SECONDS, worker=NAMES),
    st.builds(
        Assignment,
        at_s=SECONDS,
        actor=NAMES,
        containers=CONTAINERS,
        model=optional(LABELS),
        cpu_milli=optional(AMOUNTS),
        memory_bytes=optional(AMOUNTS),
        generation=st.integers(1, 1 << 53),
        worker=optional(NAMES),
        for_s=optional(SECONDS),
        class_=optional(LABELS),
    ),
    st.builds(Suspend, at_s=SECONDS, actor=NAMES),
    st.builds(Resume, at_s=SECONDS, actor=NAMES, busy_s=optional(SECONDS)),
    st.builds(Terminate, at_s=SECONDS, actor=NAMES),
    st.builds(
        FaultRecord,
        at_s=SECONDS,
        fault=NAMES,
        worker=optional(NAMES),
        actor=optional(NAMES),
        args=ARGUMENTS,
    ),
)
TRACES = st.lists(RECORDS, max_size=30).map(lambda records: sorted(records, key=lambda record: record.at_s))
HEADERS = st.builds(
    Header,
    source=st.text(max_size=40),
    seed=optional(st.integers(-(1 << 60), 1 << 60)),
    notes=st.dictionaries(st.text(max_size=10), SCALARS, max_size=3),
)


def as_lines(records: Iterable[Record]) -> bytes:
    return msgspec.json.Encoder().encode_lines(list(records))


def table(path: Path, columns: Iterable[str], *rows: str) -> Path:
    path.write_text("\n".join([",".join(columns), *rows, ""]))
    return path
