"""How quick and how quiet a worker is: the bounds that it was built for, and the numbers beside them.

The numbers are properties of the report (`--junitxml`). A machine that does other things too can spoil a measurement,
so that each bound has a few tries; a worker that is too slow fails them all.
"""

import os
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from tests.needs import ROOT
from tests.real.process import ENVIRONMENT, GREENROOM, WorkerProcess
from tests.real.scenery import assignment, counting, write_assignment
from tests.real.stage import open_worker

pytestmark = [pytest.mark.runsc, pytest.mark.bench]

TRIES = 4
FIRST_CALL_P95_MS = 50
WAKE_UPS_A_SECOND = 70
PSS_MB = 45
HELP_MS = 200
FIRST_ACCEPT_S = 0.6
CPU_PERCENT = 1.0
SCRAPE_MS = 50


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """As in the image (deploy/Containerfile): no start compiles anything, also where it may keep nothing of that."""
    packages = ("greenroom.py", "actors", "sim", "statemachine", "supervisor")
    subprocess.run([sys.executable, "-m", "compileall", "-q", *(ROOT / name for name in packages)], check=True)


def within(bound, measure, record_property, name):
    """The best of a few measurements, which must keep a bound."""
    found = []
    for _ in range(TRIES):
        found.append(measure())
        if found[-1] <= bound:
            break
    record_property(name, found)
    assert min(found) <= bound, f"{name}: {found}, at most {bound}"
    return min(found)


@pytest.mark.anyio
async def test_the_first_call_of_runsc_comes_at_most_50_ms_after_the_rename(tmp_path, rootfs, record_property):
    assignments = tmp_path / "assignments"
    assignments.mkdir()
    found = []
    async with open_worker(tmp_path, assignments=assignments) as worker:
        for batch in range(TRIES):
            waits_ms = []
            for number in range(50):
                uid = f"a{batch}-{number}"
                stands = worker.gates.close("before create")
                path = write_assignment(assignments, assignment(uid, counting("c1", rootfs), counting("c2", rootfs)))
                renamed_s = anyio.current_time()
                await stands.arrival()
                waits_ms.append(1000 * (worker.gates.passed[-1][1] - renamed_s))
                await worker.stop(uid)
                path.unlink()
            p50, p95 = statistics.median(waits_ms), statistics.quantiles(waits_ms, n=20)[18]
            found.append((round(p50, 1), round(p95, 1)))
            if p95 <= FIRST_CALL_P95_MS:
                break
        record_property("first_call_p50_p95_ms", str(found))
    assert min(p95 for _, p95 in found) <= FIRST_CALL_P95_MS, found


@pytest.mark.anyio
async def test_how_long_an_actor_of_three_containers_takes(tmp_path, rootfs, record_property):
    took: dict[str, list[float]] = {"start": [], "suspend": [], "resume": [], "stop": []}
    async with open_worker(tmp_path) as worker:
        for number in range(6):
            uid = f"a{number}"
            document = assignment(uid, *(counting(name, rootfs) for name in ("c1", "c2", "c3")))
            operations = {
                "start": lambda document=document: worker.start(document),
                "suspend": lambda uid=uid: worker.suspend(uid),
                "resume": lambda uid=uid: worker.resume(uid),
                "stop": lambda uid=uid: worker.stop(uid),
            }
            for name, operation in operations.items():
                began_s = anyio.current_time()
                await operation()
                took[name].append(anyio.current_time() - began_s)
    for name, durations in took.items():
        record_property(f"{name}_median_ms", round(1000 * statistics.median(durations)))
        record_property(f"{name}_min_ms", round(1000 * min(durations)))
        assert statistics.median(durations) < 10


@pytest.fixture
def worker(tmp_path, rootfs):
    (tmp_path / "assignments").mkdir()
    worker = WorkerProcess(tmp_path)
    worker.begin("--assignments", tmp_path / "assignments")
    yield worker
    worker.give_up()


def test_an_idle_worker_sleeps_and_is_small_with_and_without_actors(worker, rootfs, record_property):
    within(PSS_MB, lambda: pss_mb(worker), record_property, "pss_mb_without_actors")
    within(WAKE_UPS_A_SECOND, lambda: wake_ups_a_second(worker), record_property, "wake_ups_without_actors")
    worker.start(*(assignment(uid, counting("c1", rootfs), counting("c2", rootfs)) for uid in ("a1", "a2", "a3")))
    within(PSS_MB, lambda: pss_mb(worker), record_property, "pss_mb_with_3_actors")
    within(WAKE_UPS_A_SECOND, lambda: wake_ups_a_second(worker), record_property, "wake_ups_with_3_actors")
    assert worker.end() == 0


def test_an_idle_worker_uses_hardly_any_cpu_and_is_as_small_after_scrapes(worker, record_property):
    within(CPU_PERCENT, lambda: cpu_percent(worker), record_property, "cpu_percent_idle")
    within(SCRAPE_MS, lambda: scrape_ms(worker), record_property, "scrape_median_ms")
    within(PSS_MB, lambda: pss_mb(worker), record_property, "pss_mb_after_scrapes")
    assert worker.end() == 0


def test_requests_are_taken_and_answered_within_600_ms_of_the_start(tmp_path, rootfs, record_property):
    def measure():
        worker = WorkerProcess(tmp_path)
        try:
            began_s = time.monotonic()
            worker.begin_without_waiting()
            while not answers(worker):
                assert worker.running.poll() is None
                time.sleep(0.002)
            return round(time.monotonic() - began_s, 3)
        finally:
            worker.give_up()

    within(FIRST_ACCEPT_S, measure, record_property, "first_accept_s")


def answers(worker):
    """Whether it lets us in, and answers."""
    with socket.socket(socket.AF_UNIX) as sock:
        if sock.connect_ex(str(worker.run_dir / "control.sock")) != 0:
            return False
        sock.sendall(b'{"v": 1, "op": "status"}\n')
        assert sock.recv(1 << 16).startswith(b'{"ok":true')
        return True


def scrape_ms(worker):
    """The median of some scrapes."""
    took_ms = []
    for _ in range(20):
        began_s = time.monotonic()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(worker.run_dir / "http.sock"))
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while sock.recv(1 << 16):
                pass
        took_ms.append(1000 * (time.monotonic() - began_s))
    return round(statistics.median(took_ms), 1)


def cpu_percent(worker, for_s=20):
    before, began_s = _cpu_s(worker), time.monotonic()
    time.sleep(for_s)
    return round(100 * (_cpu_s(worker) - before) / (time.monotonic() - began_s), 2)


def _cpu_s(worker):
    fields = Path(f"/proc/{worker.running.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wake_ups_a_second(worker, for_s=10):
    before, began_s = _voluntary_switches(worker), time.monotonic()
    until_s = began_s + for_s
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(left_s)
    return round((_voluntary_switches(worker) - before) / (time.monotonic() - began_s), 1)


def _voluntary_switches(worker):
    tasks = Path(f"/proc/{worker.running.pid}/task")
    return sum(_number(task / "status", "voluntary_ctxt_switches") for task in tasks.iterdir())


def pss_mb(worker):
    return round(_number(Path(f"/proc/{worker.running.pid}/smaps_rollup"), "Pss") / 1024, 1)


def _number(path, name) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", path.read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def test_help_is_there_within_200_ms(record_property):
    def measure():
        took_ms = []
        for _ in range(10):
            began_s = time.monotonic()
            subprocess.run([*GREENROOM, "--help"], stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=True)
            took_ms.append(1000 * (time.monotonic() - began_s))
        return round(statistics.median(took_ms))

    assert within(HELP_MS, measure, record_property, "help_median_ms") <= HELP_MS
