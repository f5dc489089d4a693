"""What the kernel says about ourselves: here, in PID namespaces of all kinds, and with capabilities taken away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from supervisor.host.reaper import is_subreaper
from supervisor.host.self_look import look_at_ourselves
from supervisor.self_check import CAPABILITY_NUMBERS, NEEDED_CAPABILITIES
from tests.needs import Tool, need

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
PROGRAM: Final = """
import attrs, json, sys
from pathlib import Path
from supervisor.host.self_look import look_at_ourselves
from supervisor.self_check import self_checks
facts = look_at_ourselves(*map(Path, sys.argv[1:]))
checks = {check.name: check.reason for check in self_checks(facts, max_actors=10)}
print(json.dumps({"facts": attrs.asdict(facts), "reasons": checks}))
"""


def looked(*prefix: str, proc: str = "/proc") -> dict[str, Any]:
    """What a process of its own finds that is started behind this prefix."""
    argv = [*prefix, sys.executable, "-c", PROGRAM, proc]
    finished = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def test_here_it_finds_what_is_so_and_changes_nothing():
    before = is_subreaper()
    facts = look_at_ourselves()
    assert is_subreaper() == before
    assert (facts.pid, facts.proc_pids, facts.adopts_orphans) == (os.getpid(), (os.getpid(),), True)
    assert (facts.is_root, facts.pidfd_fault) == (os.geteuid() == 0, "")


def test_as_pid_1_with_a_proc_of_its_own_nothing_is_in_the_way():
    need(Tool.ROOT, Tool.UNSHARE, Tool.NAMESPACES)
    found = looked("unshare", "--fork", "--pid", "--mount-proc")
    assert (found["facts"]["pid"], found["facts"]["proc_pids"]) == (1, [1])
    assert set(found["reasons"].values()) == {None}


def test_the_proc_of_the_outer_pid_namespace_is_found_out():
    need(Tool.ROOT, Tool.UNSHARE, Tool.NAMESPACES)
    found = looked("unshare", "--fork", "--pid")
    assert len(found["facts"]["proc_pids"]) > 1
    assert found["reasons"]["proc"] == "ProcUnavailable"


def test_the_proc_of_an_inner_pid_namespace_does_not_know_us():
    need(Tool.ROOT, Tool.UNSHARE, Tool.NAMESPACES)
    # That namespace has ended, but what it had mounted is still there.
    script = 'unshare --fork --pid mount -t proc proc /proc; exec "$@"'
    found = looked("unshare", "--mount", "sh", "-c", script, "sh")
    assert found["facts"]["proc_pids"] in ([], None)
    assert found["reasons"]["proc"] == "ProcUnavailable"


def test_without_a_proc_it_says_so_and_goes_on(tmp_path):
    found = looked(proc=str(tmp_path))
    assert (found["facts"]["proc_pids"], found["facts"]["capabilities"]) == (None, None)
    assert (found["reasons"]["proc"], found["reasons"]["capabilities"]) == ("ProcUnavailable", "CapabilityMissing")


@pytest.mark.parametrize("name", CAPABILITY_NUMBERS)
def test_a_capability_that_was_taken_away_is_missed_by_its_name(name):
    need(Tool.ROOT, Tool.SETPRIV)
    found = looked("setpriv", f"--bounding-set=-{name.lower()}", f"--inh-caps=-{name.lower()}")
    assert not found["facts"]["capabilities"] >> CAPABILITY_NUMBERS[name] & 1
    assert found["reasons"]["capabilities"] == "CapabilityMissing"


def test_the_capabilities_of_a_worker_are_enough_for_its_own_check():
    need(Tool.ROOT, Tool.SETPRIV)
    wanted = ",".join(f"+{name.lower()}" for name in CAPABILITY_NUMBERS)
    found = looked("setpriv", f"--bounding-set=-all,{wanted}", f"--inh-caps=-all,{wanted}")
    assert found["reasons"]["capabilities"] is None
    assert set(NEEDED_CAPABILITIES) < set(CAPABILITY_NUMBERS)


def test_the_limit_of_open_files_is_raised_as_far_as_it_can_be():
    program = (
        "import resource as r; from supervisor.host.surroundings import FILES_MAX, raise_file_limit; "
        "hard = r.getrlimit(r.RLIMIT_NOFILE)[1]; r.setrlimit(r.RLIMIT_NOFILE, (64, hard)); raise_file_limit(); "
        "wanted = FILES_MAX if hard == r.RLIM_INFINITY else min(hard, FILES_MAX); "
        "print(r.getrlimit(r.RLIMIT_NOFILE) == (wanted, hard) != (64, hard))"
    )
    argv = [sys.executable, "-c", program]
    finished = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert (finished.stdout, finished.stderr) == ("True\n", "")


@pytest.mark.parametrize("call", ["pidfd_open", "pidfd_send_signal"])
def test_a_kernel_that_refuses_pidfds_is_told_in_its_own_words(monkeypatch, call):
    def refuse(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os if call == "pidfd_open" else signal, call, refuse)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted, not used as paths
    assert look_at_ourselves().pidfd_fault == f"{call} says Function not implemented"
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
