"""What a worker is and may do, judged before it holds anything."""

import pytest

from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.self_check import (
    CAPABILITY_NUMBERS,
    FILES_OF_THE_WORKER,
    FILES_PER_ACTOR,
    NEEDED_CAPABILITIES,
    WANTED_CAPABILITIES,
    SelfFacts,
    judge_adoption,
    judge_capabilities,
    judge_open_files,
    judge_pidfd,
    judge_proc,
    judge_system_calls,
    refuse_what_is_in_the_way,
    self_checks,
)
from tests.doctor.saying import FAIL, OK, WARN, said

EVERY = sum(1 << number for number in CAPABILITY_NUMBERS.values())


def facts(**changes):
    """Those of a worker that is PID 1 and lacks nothing, but for what is changed."""
    whole = {
        "pid": 1,
        "is_root": True,
        "adopts_orphans": True,
        "proc_pids": (1,),
        "lists_children": True,
        "pidfd_fault": "",
        "capabilities": EVERY,
        "refused_calls": (),
        "files_max": 1 << 20,
    }
    return SelfFacts(**{**whole, **changes})


def without(*names):
    return facts(capabilities=EVERY - sum(1 << CAPABILITY_NUMBERS[name] for name in names))


def test_pid_1_that_lacks_nothing_may_start(logs):
    checks = self_checks(facts(), max_actors=1000)
    assert {check.status for check in checks} == {OK}
    refuse_what_is_in_the_way(checks)
    assert [entry["name"] for entry in logs if entry["event"] == "self_check"] == [check.name for check in checks]


@pytest.mark.parametrize(
    ("changed", "status", "words"),
    [
        ({}, OK, "PID 1"),
        ({"pid": 7, "proc_pids": (7,)}, OK, "subreaper"),
        ({"pid": 7, "adopts_orphans": False}, FAIL, "process 7"),
    ],
)
def test_orphans_come_to_pid_1_or_to_a_subreaper(changed, status, words):
    assert said(judge_adoption(facts(**changed)), status, None if status is OK else Reason.SUBREAPER_REFUSED, words)


@pytest.mark.parametrize(
    ("pids", "words"),
    [(None, "no /proc"), ((4711, 1), "this process is 1, and 1 in 4711 there"), ((), "not known at all"), ((2,), "2")],
)
def test_a_proc_that_is_absent_or_of_another_pid_namespace_is_in_the_way(pids, words):
    assert said(judge_proc(facts(proc_pids=pids)), FAIL, Reason.PROC_UNAVAILABLE, words)


@pytest.mark.parametrize(("lists", "words"), [(True, "children are listed"), (False, "every process is looked at")])
def test_a_kernel_without_lists_of_children_does_as_well(lists, words):
    assert said(judge_proc(facts(lists_children=lists)), OK, None, words)


def test_without_pidfds_no_process_is_held():
    check = judge_pidfd(facts(pidfd_fault="pidfd_open says Function not implemented"))
    assert said(check, FAIL, Reason.PIDFD_UNAVAILABLE, "not implemented")


@pytest.mark.parametrize("name", NEEDED_CAPABILITIES)
def test_a_capability_that_every_start_needs_is_in_the_way_and_says_what_it_is_for(name):
    check = judge_capabilities(without(name))
    assert said(check, FAIL, Reason.CAPABILITY_MISSING, f"CAP_{name} ({NEEDED_CAPABILITIES[name]})")


@pytest.mark.parametrize("name", WANTED_CAPABILITIES)
def test_a_capability_that_some_actors_need_is_a_warning(name):
    assert said(judge_capabilities(without(name)), WARN, Reason.CAPABILITY_MISSING, f"CAP_{name}")


@pytest.mark.parametrize("changed", [{"capabilities": None}, {"is_root": False, "capabilities": 0}])
def test_capabilities_that_cannot_be_told_are_a_warning(changed):
    assert said(judge_capabilities(facts(**changed)), WARN, Reason.CAPABILITY_MISSING)


def test_system_calls_that_are_refused_are_in_the_way_and_named():
    check = judge_system_calls(facts(refused_calls=("mount", "pivot_root")))
    assert said(check, FAIL, Reason.SYSCALL_REFUSED, "mount, pivot_root")
    assert said(judge_system_calls(facts()), OK, None)


@pytest.mark.parametrize("changed", [{"capabilities": None}, {"capabilities": 0}, {"is_root": False}])
def test_without_the_right_to_them_refused_system_calls_say_nothing(changed):
    check = judge_system_calls(facts(refused_calls=("mount",), **changed))
    assert said(check, WARN, Reason.SYSCALL_REFUSED, "not known")


@pytest.mark.parametrize(("files_more", "status"), [(0, OK), (-1, WARN)])
def test_the_limit_of_open_files_is_held_against_the_number_of_actors(files_more, status):
    needed = FILES_OF_THE_WORKER + 50 * FILES_PER_ACTOR
    check = judge_open_files(facts(files_max=needed + files_more), max_actors=50)
    assert said(check, status, None if status is OK else Reason.FILE_LIMIT_LOW, "50 actors")


def test_a_start_is_refused_for_the_first_obstacle_and_the_log_tells_each(logs):
    checks = self_checks(facts(proc_pids=None, pidfd_fault="why", files_max=1), max_actors=9)
    with pytest.raises(ProblemError) as raised:
        refuse_what_is_in_the_way(checks)
    assert (raised.value.problem.reason, raised.value.problem.subject) == (Reason.PROC_UNAVAILABLE, "proc")
    told = {entry["name"]: (entry["log_level"], entry.get("reason")) for entry in logs}
    assert told == {
        "orphans": ("debug", None),
        "proc": ("error", "ProcUnavailable"),
        "pidfd": ("error", "PidfdUnavailable"),
        "capabilities": ("debug", None),
        "system-calls": ("debug", None),
        "open-files": ("warning", "FileLimitLow"),
    }
    assert all(entry["hint"] for entry in logs if "reason" in entry)
