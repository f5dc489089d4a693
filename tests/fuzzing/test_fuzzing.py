"""The fuzz targets keep their promises for their seeds and for odd bytes, can fail, and a short run finds nothing."""

import platform
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from statemachine.problem import ProblemError
from tests.fuzzing import promises
from tests.fuzzing.promises import CPU_S_MAX, BrokenPromiseError, Target, attempt, finished, refused
from tests.fuzzing.targets import TARGETS
from tests.needs import ROOT, cannot

RUN_S = 5
ODD = (b"", b"\0", b"\xff" * 9, b"null", b"[]", b"{}", b'"\\ud800"', b"9" * 5000, b"[" * 3000, b'{"a":' * 900)
every = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())


@every
def test_every_seed_keeps_the_promises(target):
    seeds = dict(target.seeds())
    assert seeds
    for name, data in seeds.items():
        assert len(data) <= target.input_bytes_max or target.name in {"cdi", "record"}, name
        assert attempt(target, data) < CPU_S_MAX


@every
def test_odd_bytes_keep_the_promises(target):
    for first in range(11):
        for rest in ODD:
            assert attempt(target, bytes([first]) + rest) < CPU_S_MAX
            assert attempt(target, rest) < CPU_S_MAX


@every
def test_a_seed_that_is_cut_anywhere_or_has_a_flipped_byte_keeps_the_promises(target):
    for _name, data in list(target.seeds())[:6]:
        for place in range(0, len(data), len(data) // 24 + 1):
            assert attempt(target, data[:place]) < CPU_S_MAX
            assert attempt(target, data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :]) < CPU_S_MAX


def test_an_input_that_takes_too_long_is_found(monkeypatch):
    now = iter((0.0, promises.CPU_S_MAX))
    monkeypatch.setattr(time, "process_time", lambda: next(now))
    with pytest.raises(BrokenPromiseError, match="no longer"):
        attempt(Target(name="x", check=len, seeds=tuple), b"")


def test_a_refusal_that_cannot_be_told_is_found():
    odd: Any = SimpleNamespace(reason="NoReason", subject="x", message="x")
    error = ProblemError(odd)

    def read():
        raise error

    with pytest.raises(BrokenPromiseError, match="catalogue"):
        refused(read)


def test_a_reader_that_waits_is_found():
    async def waits():
        await _Pause()

    class _Pause:
        def __await__(self):
            yield

    with pytest.raises(BrokenPromiseError, match="waits"):
        finished(waits())


@pytest.mark.long
@every
def test_a_short_run_finds_nothing(target):
    if platform.machine() != "x86_64":
        cannot("atheris has wheels for x86_64 only")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzzing", target.name, str(RUN_S)],
        cwd=ROOT, capture_output=True, text=True, timeout=RUN_S + 300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "number_of_executed_units" in ended.stderr
