"""What containers write, with real gVisor: labelled on the worker's stdout, followed, bounded on disk (case 039)."""

import contextlib
import json
import os
import signal
import subprocess

import pytest

from supervisor.container_logs import FILE_BYTES_MAX
from tests.real.process import ENVIRONMENT, GREENROOM, SOON_S, WorkerProcess, greenroom, wait_until
from tests.real.scenery import assignment, counting, goes_on, running, whole_lines

pytestmark = pytest.mark.runsc

HOSTILE = r"""
printf '{"labels":{"ate.dev/actor_uid":"victim","team":"x"},"message":"m1"}\n'
printf '{"message":"m2"} garbage\n[1]\n{"n":12345678901234567890}\n'
printf 'nul \000 bad \377\n'
echo to stderr >&2
printf 'without an end'
"""
LONG_LINES = """BEGIN { s = sprintf("%1000s", "x"); for (i = 0; i < 45000; i++) print i, s }"""


@contextlib.contextmanager
def a_worker(directory, stdout):
    worker = WorkerProcess(directory, ("--container-output", "stdout"), stdout=stdout)
    try:
        worker.begin()
        yield worker
    finally:
        worker.give_up()


@pytest.fixture
def written(tmp_path):
    """A file for the worker's stdout."""
    fd = os.open(tmp_path / "stdout", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield fd
    os.close(fd)


def counts(worker, uid="a1"):
    """Wait until its container has written some lines more."""
    log = worker.state.actor(uid).log("main")
    before = len(whole_lines(log))
    wait_until(lambda: len(whole_lines(log)) > before + 1)


def lines_in(fd):
    """The lines that a worker has told; each is an object with the labels of a real container."""
    data = os.pread(fd, 1 << 30, 0)
    assert data.endswith(b"\n") or not data
    lines = [json.loads(line) for line in data.splitlines()]
    for line in lines:
        assert line["labels"]["ate.dev/actor_uid"] in {"a1", "a2"}
        assert line["labels"]["ate.dev/container_name"] in {"main", "side"}
    return lines


def test_case_039_hostile_lines_of_two_containers_are_told_labelled_and_none_is_lost_or_mixed(
    tmp_path, rootfs, written
):
    with a_worker(tmp_path, written) as worker:
        hostile = running("main", rootfs, "sh", "-c", HOSTILE)
        worker.submit(assignment("a1", hostile, running("side", rootfs, "sh", "-c", "echo of the other")))
        worker.reach("a1", "Terminated")
        assert worker.end() == 0
        lines = lines_in(written)
    said = {
        name: [line.get("message", line.get("n")) for line in lines if line["labels"]["ate.dev/container_name"] == name]
        for name in ("main", "side")
    }
    assert said["side"] == ["of the other"]
    assert said["main"] == [
        "m1", '{"message":"m2"} garbage', "[1]", 12345678901234567890, "nul \0 bad \\xff", "to stderr",
        "without an end",
    ]  # fmt: skip
    assert [line["labels"].get("team") for line in lines].count("x") == 1
    assert b"victim" not in os.pread(written, 1 << 20, 0)


def test_what_is_written_over_a_suspend_and_resume_is_told_once(tmp_path, rootfs, written):
    with a_worker(tmp_path, written) as worker:
        worker.start(assignment("a1", counting("main", rootfs)))
        counts(worker)
        worker.become("a1", "suspend", "Suspended")
        worker.become("a1", "resume", "Running")
        counts(worker)
        worker.become("a1", "stop", "Terminated")
        assert worker.end() == 0
        counted = [line["message"] for line in lines_in(written)]
        assert len(counted) > 1
        assert goes_on(counted)
        assert worker.state.actor("a1").log("main").read_text().splitlines() == counted


def test_a_stdout_that_nobody_reads_stops_no_actor_and_no_worker(tmp_path, rootfs):
    reader, writer = os.pipe()
    try:
        with a_worker(tmp_path, writer) as worker:
            flood = "while :; do head -c 100000 /dev/zero | tr '\\0' x; echo; done"
            worker.start(assignment("a1", running("main", rootfs, "sh", "-c", flood)))
            worker.start(assignment("a2", counting("main", rootfs)))
            log = worker.state.actor("a1").log("main")
            wait_until(lambda: log.stat().st_size > 1 << 20)  # far more than a pipe takes
            worker.become("a2", "suspend", "Suspended")
            worker.become("a1", "stop", "Terminated")
            assert worker.end() == 0
            assert '"untold"' in worker.log.read_text()
    finally:
        os.close(reader)
        os.close(writer)


def test_a_reader_that_has_gone_costs_the_lines_and_nothing_else(tmp_path, rootfs):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with a_worker(tmp_path, writer) as worker:
            worker.start(assignment("a1", counting("main", rootfs)))
            counts(worker)
            worker.become("a1", "stop", "Terminated")
            assert worker.end() == 0
            assert '"OutputUnwritable"' in worker.log.read_text()
    finally:
        os.close(writer)


@pytest.mark.long
def test_a_log_that_is_cut_while_it_is_written_is_told_whole_followed_whole_and_bounded(tmp_path, rootfs, written):
    with a_worker(tmp_path, written) as worker:
        worker.start(assignment("a1", running("main", rootfs, "sh", "-c", f"sleep 1; awk '{LONG_LINES}'; sleep 1")))
        argv = [*GREENROOM, "logs", "-f", "--run-dir", str(worker.run_dir), "a1"]
        followed = subprocess.run(
            argv, capture_output=True, env=ENVIRONMENT, timeout=2 * SOON_S, check=False, stdin=subprocess.DEVNULL
        )
        worker.reach("a1", "Terminated")
        assert worker.end() == 0
        log = worker.state.actor("a1").log("main")
        sizes = [path.stat().st_size for path in (log, log.with_name("main.log.1"))]
        lines = lines_in(written)
    assert followed.returncode == 0
    expected = [f"{number} {'x':>1000}" for number in range(45_000)]
    if not followed.stderr:  # else it was slower than the container, and said so
        assert followed.stdout.decode().splitlines() == expected
    dropped = sum(line.get("dropped_bytes", 0) for line in lines)
    told = [line["message"] for line in lines if "dropped_bytes" not in line]
    assert dropped + sum(len(line) + 1 for line in told) == sum(len(line) + 1 for line in expected)
    if not dropped:
        assert told == expected
    assert max(sizes) <= FILE_BYTES_MAX


def test_who_follows_is_told_of_the_end_and_can_be_interrupted(tmp_path, rootfs, written):
    with a_worker(tmp_path, written) as worker:
        worker.start(assignment("a1", counting("main", rootfs)))
        argv = [*GREENROOM, "logs", "-f", "--run-dir", str(worker.run_dir), "a1"]
        interrupted, _rest = following_until(argv, lambda process: process.send_signal(signal.SIGINT))
        assert interrupted == 130
        code, rest = following_until(argv, lambda _process: worker.become("a1", "stop", "Terminated"))
        assert code == 0
        assert goes_on(["0", *rest.decode().splitlines()])
        assert greenroom("logs", "--run-dir", worker.run_dir, "a1").stdout == "0\n" + rest.decode()


def following_until(argv, act):
    """Follow a log whose first line is `0`, let something happen, and return the exit code and what came then."""
    # Unbuffered: what follows the first line is read by `communicate`.
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT, bufsize=0)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"
        act(process)
        rest, err = process.communicate(timeout=SOON_S)
        assert err.strip() == b""  # click ends the line of a ^C
        return process.returncode, rest
    finally:
        process.kill()
        process.wait()
