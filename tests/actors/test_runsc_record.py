"""What is known of an activation: ids, its record, versions, and runsc's own answers and state files."""

import errno
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.gpu.desk import SpecFacts
from actors.manifest import Shape, ShapeMount, ShapeUser
from actors.ports import DeadlineExceededError, Exit, Finished, ProcessIdentity
from actors.runsc.answers import (
    ContainerState,
    Status,
    descendants,
    parse_exit_status,
    parse_list,
    parse_pid_file,
    parse_processes,
    parse_state,
)
from actors.runsc.belongings import Belongings, Granted
from actors.runsc.flags import GlobalFlags
from actors.runsc.gofers import gofer_pid, parse_gofer_pid, state_file
from actors.runsc.ids import fresh_activation, fresh_container_ids
from actors.runsc.record import read_record, write_record
from actors.runsc.version import Flavour, RuntimeVersion, runtime_version
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.doubles import Double
from tests.actors.memory_files import DIRECTORY as DIRECTORY_THERE
from tests.actors.memory_files import MemoryFiles
from tests.actors.records import a_record
from tests.gpu.making import gpu

RECORD = a_record(
    flags=GlobalFlags(extra=("--nvproxy",)),
    container_ids={"pause": "c0", "web": "c1"},
    sandbox=ProcessIdentity(pid=10, start_ticks=20),
    gofers={"pause": ProcessIdentity(pid=11, start_ticks=20)},
)
BELONGINGS = Belongings(
    runtime_sha256="00",
    granted=(Granted("web", (gpu(3), gpu(1))), Granted("log", ())),
    spec=SpecFacts(identity="0" * 16, driver="550.90.07"),
    shapes={
        "once": Shape(
            args=("true",), user=ShapeUser(uid=1, gid=2), devices=(),
            mounts=(ShapeMount(destination="/x", type="bind", options=("ro",)),),
            capabilities=("CAP_KILL",),
        )
    },
    doubted=("web",),
)  # fmt: skip
DIRECTORY = Path("/s/a1")


@attrs.define
class CountingWall(Double):  # type: ignore[misc]
    """Ids from a list, then counted ones."""

    ids: list[str] = attrs.field(factory=list)
    count: int = 0

    def fresh_id(self):
        self.count += 1
        return self.ids.pop(0) if self.ids else f"{self.count:016x}"


def test_no_id_is_a_prefix_of_another_and_each_begins_with_a_letter():
    names = [f"n{number}" for number in range(50)]
    ids = fresh_container_ids(CountingWall(), names)
    assert list(ids) == names
    assert all(each[0].isalpha() and len(each) == 17 for each in ids.values())
    assert not any(a != b and b.startswith(a) for a in ids.values() for b in ids.values())
    assert fresh_activation(CountingWall()) == "a0000000000000001"


@pytest.mark.parametrize("ids", [["same", "same"], ["app", "application"]])
def test_ids_that_could_be_mistaken_for_each_other_are_refused(ids):
    with pytest.raises(ValueError, match="distinct"):
        fresh_container_ids(CountingWall(ids), ["a", "b"])


# ---------------------------------------------------------------------------------------------------------- the record


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("record", "version"),
    [
        (RECORD, 1),
        (attrs.evolve(RECORD, sandbox=None, gofers={}), 1),
        (attrs.evolve(RECORD, belongings=Belongings(runtime_sha256="00")), 2),
        (attrs.evolve(RECORD, belongings=BELONGINGS), 2),
    ],
)
async def test_a_record_reads_back(record, version):
    files = MemoryFiles()
    await files.make_directory(DIRECTORY)
    await write_record(files, DIRECTORY, record)
    assert json.loads(files.content[DIRECTORY / "sandbox.json"])["v"] == version
    assert await read_record(files, DIRECTORY) == record
    assert record.root_id == "c0"


@pytest.mark.anyio
async def test_where_there_is_no_record_there_is_none():
    assert await read_record(MemoryFiles(), DIRECTORY) is None


def changed(**members):
    return json.dumps({**RECORD.as_json(), **members}).encode()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.STATE_CORRUPT),
        (b"[]", Reason.STATE_CORRUPT),
        (b"{}", Reason.STATE_CORRUPT),
        (changed(v=3), Reason.NEWER_FORMAT),
        (changed(v=2), Reason.STATE_CORRUPT),
        (changed(v=2, belongings={}), Reason.STATE_CORRUPT),
        (changed(v=2, belongings={"runtimeSha256": "0", "granted": [{"container": "web"}]}), Reason.STATE_CORRUPT),
        (changed(v="1"), Reason.STATE_CORRUPT),
        (changed(containers={"web": "c1"}), Reason.STATE_CORRUPT),
        (changed(containers={"pause": 1}), Reason.STATE_CORRUPT),
        (changed(sandbox={"pid": "10", "startTicks": 1}), Reason.STATE_CORRUPT),
        (changed(sandbox=[1]), Reason.STATE_CORRUPT),
        (changed(sandbox={"pid": True, "startTicks": 1}), Reason.STATE_CORRUPT),
        (changed(runsc={"path": "/x"}), Reason.STATE_CORRUPT),
    ],
)
async def test_a_record_that_cannot_be_believed_has_its_reason(data, reason):
    with pytest.raises(ProblemError) as failed:
        await read_record(MemoryFiles({DIRECTORY / "sandbox.json": data}), DIRECTORY)
    assert failed.value.problem.reason is reason


@pytest.mark.anyio
async def test_a_member_that_is_new_is_passed_over():
    files = MemoryFiles({DIRECTORY / "sandbox.json": changed(added={"later": True})})
    assert await read_record(files, DIRECTORY) == RECORD


@pytest.mark.anyio
async def test_a_record_that_cannot_be_written_is_a_problem_of_the_step():
    files = MemoryFiles({DIRECTORY: DIRECTORY_THERE})
    files.fail("replace", DIRECTORY / "sandbox.json", errno.EROFS)
    with pytest.raises(ProblemError) as failed:
        await write_record(files, DIRECTORY, RECORD, step=Step.RESTORE)
    assert (failed.value.problem.step, failed.value.problem.reason) == (Step.RESTORE, Reason.STATE_UNWRITABLE)


@pytest.mark.anyio
async def test_an_activation_whose_directory_is_gone_gets_none_that_holds_a_record_alone():
    files = MemoryFiles()
    with pytest.raises(ProblemError) as failed:
        await write_record(files, DIRECTORY, RECORD)
    assert failed.value.problem.reason is Reason.STATE_UNWRITABLE
    assert not files.content


# ------------------------------------------------------------------------------------------------------------- versions


@attrs.define
class Answers(Double):  # type: ignore[misc]
    """A Processes port that gives one answer, or raises."""

    answer: Any

    async def run(self, argv, **_):
        assert argv == ("/r/runsc", "--version")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_only_a_current_runsc_is_told_to_keep_no_mount_in_its_root():
    measured, current = RuntimeVersion.of("0.0~20240729.0"), RuntimeVersion.of("release-20260905.0")
    assert measured is not None
    assert current is not None
    assert (measured.flags, current.flags) == ((), ("--gofer-network-namespace=new",))


@pytest.mark.parametrize(
    ("text", "date", "flavour"),
    [
        ("release-20240729.0", 20240729, Flavour.R24),
        ("0.0~20240729.0", 20240729, Flavour.R24),
        ("release-20260810.0-5-g3eee17d", 20260810, Flavour.HEAD),
    ],
)
@pytest.mark.anyio
async def test_a_version_is_read_from_runscs_own_words(text, date, flavour):
    answer = Finished(exit=Exit(code=0), stdout=f"runsc version {text}\nspec: 1.1.0\n".encode())
    version = await runtime_version(Answers(answer), Path("/r/runsc"), step=Step.CREATE)
    assert (version.text, version.date, version.flavour) == (text, date, flavour)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file"), Reason.RUNTIME_UNAVAILABLE, "No such file"),
        (PermissionError(errno.EACCES, "Permission denied"), Reason.RUNTIME_UNAVAILABLE, "Permission denied"),
        (DeadlineExceededError(), Reason.RUNTIME_UNAVAILABLE, "within 10 s"),
        (Finished(exit=Exit(code=1), stderr=b"boom"), Reason.RUNTIME_UNAVAILABLE, "ended with 1"),
        (Finished(exit=Exit(code=None), stdout=b"runsc version 20990101"), Reason.RUNTIME_UNAVAILABLE, "None"),
        (Finished(exit=Exit(code=0), stdout=b"runc version 1.2"), Reason.RUNTIME_UNAVAILABLE, "named no version"),
        (Finished(exit=Exit(code=0), stdout=b"runsc version VERSION_MISSING\n"), Reason.RUNTIME_UNAVAILABLE, "MISSING"),
        (Finished(exit=Exit(code=0), stdout=b"runsc version release-20240728.0\n"), Reason.RUNTIME_TOO_OLD, "20240729"),
        (Finished(exit=Exit(code=0), stdout=b"runsc version release-20220101.0\n"), Reason.RUNTIME_TOO_OLD, "2022"),
        (
            Finished(exit=Exit(code=0), stdout=b"runsc version 1202407290\n"),
            Reason.RUNTIME_UNAVAILABLE,
            "which release",
        ),
    ],
)
async def test_a_runsc_that_is_of_no_use_has_its_reason(answer, reason, says):
    with pytest.raises(ProblemError) as failed:
        await runtime_version(Answers(answer), Path("/r/runsc"), step=Step.CREATE)
    problem = failed.value.problem
    assert (problem.reason, problem.subject) == (reason, "/r/runsc")
    assert says in problem.message


@pytest.mark.parametrize(
    ("here", "there", "can"),
    [
        ("0.0~20240729.0", "0.0~20240729.0", True),
        ("0.0~20240729.0", "release-20240729.0", True),
        ("release-20260810.0", "release-20260810.0", True),
        ("release-20260810.0", "release-20260817.0", False),
        ("release-20260810.0", "0.0~20240729.0", False),
        ("0.0~20240729.0", "release-20260810.0", False),
        ("0.0~20240729.0", "nonsense", False),
    ],
)
def test_only_the_oldest_flavour_restores_what_another_build_saved(here, there, can):
    version = RuntimeVersion.of(here)
    assert version is not None
    assert version.can_restore(there) is can


@pytest.mark.parametrize(
    ("text", "knows"), [("0.0~20240729.0", False), ("release-20260820.0", False), ("release-20260905.0", True)]
)
def test_a_runsc_is_told_to_pass_over_another_spec_only_where_it_is_known_to_compare_it(text, knows):
    version = RuntimeVersion.of(text)
    assert version is not None
    assert bool(version.forcing_flags) is knows


# -------------------------------------------------------------------------------------------------------------- answers

STATE = {"ociVersion": "1.2.0", "id": "c1", "status": "running", "pid": 7, "bundle": "/b"}


def test_answers_are_read():
    assert parse_state(json.dumps(STATE).encode()) == ContainerState(id="c1", status=Status.RUNNING, pid=7)
    stopped = {**STATE, "status": "stopped", "pid": -1}
    assert parse_list(json.dumps([stopped]).encode()) == (ContainerState(id="c1", status=Status.STOPPED, pid=None),)
    assert parse_list(b"null\n") == ()
    assert parse_exit_status(b'{"id":"c1","exitStatus":137}\n') == 137
    assert parse_pid_file(b"123") == 123
    table = b"UID   PID   PPID   C  TTY STIME TIME CMD\n0 4 0 19 ? 15:38 20ms sh\n0 7 4 1 ? 15:38 0s sleep\n\n"
    assert parse_processes(table) == {4: 0, 7: 4}


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        (parse_state, b""),
        (parse_state, b"null"),
        (parse_state, b'{"id":"c1","status":"flying","pid":1}'),
        (parse_state, b'{"id":"c1","status":"running","pid":"1"}'),
        (parse_state, b'{"status":"running","pid":1}'),
        (parse_list, b"{}"),
        (parse_list, b"[1]"),
        (parse_exit_status, b"{}"),
        (parse_exit_status, b'{"exitStatus":true}'),
        (parse_pid_file, b""),
        (parse_pid_file, b"1"),
        (parse_pid_file, b"-1"),
        (parse_pid_file, b"\xff"),
        (parse_processes, b""),
        (parse_processes, b"[4]"),
        (parse_processes, b"UID PID PPID\n0 4\n"),
        (parse_processes, b"UID PID PPID\n0 x y\n"),
    ],
)
def test_an_answer_of_another_form_is_refused(parse, data):
    with pytest.raises(ValueError):
        parse(data)


def test_what_is_below_a_process_is_found_through_its_children():
    parents = {4: 0, 5: 0, 7: 5, 9: 7, 22: 4}
    assert descendants(parents, 5) == (5, 7, 9)
    assert descendants(parents, 99) == ()


def test_processes_that_are_each_others_parents_are_each_found_once():
    # A sandbox that was taken over says what it likes, and this ran for ever.
    assert descendants({4: 4, 5: 4}, 4) == (4, 5)
    assert descendants({5: 7, 7: 9, 9: 5}, 7) == (7, 5, 9)


def test_of_very_many_processes_each_is_looked_at_once():
    parents = {pid: pid // 2 for pid in range(2, 100_000)}
    assert len(descendants({1: 0, **parents}, 1)) == 99_999


# --------------------------------------------------------------------------------------------------------------- gofers


@pytest.mark.anyio
async def test_the_gofer_stands_in_runscs_own_state():
    path = state_file(Path("/s/a1/runsc"), container_id="c1", sandbox_id="c0")
    assert path == Path("/s/a1/runsc/c1_sandbox:c0.state")
    files = MemoryFiles({path: b'{"id":"c1","goferPid":77,"more":{}}'})

    async def ask(files):
        root = Path("/s/a1/runsc")
        return await gofer_pid(files, root, name="web", container_id="c1", sandbox_id="c0", step=Step.CREATE)

    assert await ask(files) == 77
    with pytest.raises(ProblemError) as failed:
        await ask(MemoryFiles())
    assert (failed.value.problem.reason, failed.value.problem.subject) == (Reason.RUNTIME_FAILED, "web")


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"id":"c2","goferPid":5}', b'{"id":"c1","goferPid":0}', b'{"id":"c1","goferPid":true}']
)
def test_a_state_that_names_no_gofer_of_this_container_is_refused(data):
    with pytest.raises(ValueError):
        parse_gofer_pid(data, container_id="c1")
