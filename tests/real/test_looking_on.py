"""`status --watch` and `trace` beside a real worker: what happens is seen as it happens, and afterwards."""

import json
import signal
import subprocess

import pytest

from tests.real.process import ENVIRONMENT, GREENROOM, SOON_S, WorkerProcess, greenroom
from tests.real.scenery import assignment, counting

pytestmark = pytest.mark.runsc


@pytest.fixture
def worker(tmp_path, rootfs):
    worker = WorkerProcess(tmp_path)
    try:
        worker.begin()
        yield worker
    finally:
        worker.give_up()


def test_every_change_is_seen_until_interrupted_and_the_whole_life_afterwards(worker, tmp_path, rootfs):
    argv = [*GREENROOM, "status", "--watch", "--json", "--run-dir", str(worker.run_dir)]
    watching = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    try:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["actors"] == []
        worker.start(assignment("a1", counting("main", rootfs)))
        states = list[str]()
        while states[-1:] != ["Running"]:
            states += [actor["state"] for actor in json.loads(watching.stdout.readline())["actors"]]
        watching.send_signal(signal.SIGINT)
        assert watching.wait(timeout=SOON_S) == 130
    finally:
        watching.kill()
        watching.communicate()
    worker.become("a1", "stop", "Terminated")
    assert worker.end() == 0
    # The worker is gone; the journal is there.
    told = greenroom("trace", "a1", "--state-dir", worker.state.root)
    assert told.returncode == 0
    assert [word for word in told.stdout.split() if word in {"Assigned", "Creating", "Running", "Stopping"}] == [
        "Assigned", "Creating", "Running", "Stopping",
    ]  # fmt: skip
    document = json.loads(greenroom("trace", "a1", "-o", "-", "--state-dir", worker.state.root).stdout)
    spans = {event["name"]: event["dur"] for event in document["traceEvents"] if event["ph"] == "X"}
    assert spans["Creating"] > 0
    assert spans["Terminated"] == 0


def test_who_watches_is_told_that_the_worker_has_left(worker):
    argv = [*GREENROOM, "status", "--watch", "--run-dir", str(worker.run_dir)]
    watching = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith(b"worker  Ready")
        assert worker.end() == 0
        _out, err = watching.communicate(timeout=SOON_S)
        assert watching.returncode == 1
        assert b"error: WorkerUnreachable: " in err
    finally:
        watching.kill()
        watching.communicate()
