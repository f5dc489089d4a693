"""How fast traces are read and written, in seconds of a processor, on a machine that does nothing else."""

import time

import pytest

from sim.traces.generating.registry import generate
from sim.traces.reading import read_trace
from sim.traces.writing import write_trace

pytestmark = pytest.mark.bench

READ_PER_S_MIN = 300_000
WRITTEN_PER_S_MIN = 300_000


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_traces_are_read_and_written_by_the_hundred_thousand(tmp_path, suffix, record_property):
    header, made = generate("diurnal", {"requests_per_hour": 8000}, 1)
    records, path = list(made), tmp_path / f"t.{suffix}"
    began_s = time.process_time()
    write_trace(path, header, records)
    written_s = time.process_time() - began_s
    began_s = time.process_time()
    count = sum(1 for _ in read_trace(path)[1])
    read_s = time.process_time() - began_s
    assert count == len(records) > 190_000
    record_property("read_per_s", count / read_s)
    record_property("written_per_s", count / written_s)
    assert count / read_s >= READ_PER_S_MIN
    # Packing takes its own time, which is that of zlib.
    assert suffix == "jsonl.gz" or count / written_s >= WRITTEN_PER_S_MIN
