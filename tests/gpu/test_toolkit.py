"""NVIDIA's container toolkit in a pod: where it is looked for, what of it is run, and which version it says it is."""

import errno
from pathlib import Path

import pytest

from actors.gpu.toolkit import (
    PROGRAM_FOLDERS,
    USUAL_DIRECTORIES,
    Program,
    ToolkitHungError,
    ToolkitVersion,
    ask_version,
    find_program,
    toolkit_directories,
    toolkit_of,
)
from actors.ports import DeadlineExceededError, Exit, Finished
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from supervisor.host.files import HostFiles
from tests.actors.doubles import Double

pytestmark = pytest.mark.anyio

SAYS = b"NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n"
WRAPPER = "#!/bin/sh\nexec nvidia-ctk.real\n"


class Answering(Double):  # type: ignore[misc]
    """Every command ends as it is told: a Finished, or an error that is raised."""

    def __init__(self, ends):
        self.ends, self.argvs, self.environments = ends, [], []

    async def run(self, argv, *, deadline_s, env):
        self.argvs.append(argv)
        self.environments.append(env)
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends


def put(path: Path, content: str = "\x7fELF", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(mode)
    return path


async def found(*directories: Path) -> Program:
    return await find_program(HostFiles(roots=[]), directories)


async def refused(*directories: Path):
    with pytest.raises(ProblemError) as raised:
        await found(*directories)
    return raised.value.problem


def test_it_is_looked_for_where_it_usually_is_unless_somebody_says_where():
    assert toolkit_directories(None) == (*USUAL_DIRECTORIES, *PROGRAM_FOLDERS)
    assert toolkit_directories(None, (Path("/a"), USUAL_DIRECTORIES[0])) == (*USUAL_DIRECTORIES, Path("/a"))
    assert toolkit_directories(Path("/nvidia")) == (Path("/nvidia"), Path("/nvidia/toolkit"))


async def test_the_first_directory_that_has_it_counts(tmp_path):
    put(tmp_path / "b/nvidia-ctk")
    put(tmp_path / "c/nvidia-ctk")
    assert (await found(tmp_path / "a", tmp_path / "b", tmp_path / "c")).path == tmp_path / "b/nvidia-ctk"


async def test_beside_its_wrapper_the_program_itself_is_taken(tmp_path):
    put(tmp_path / "nvidia-ctk", WRAPPER)
    put(tmp_path / "nvidia-ctk.real")
    assert (await found(tmp_path)).path == tmp_path / "nvidia-ctk.real"


async def test_a_wrapper_whose_program_is_elsewhere_is_run_where_its_interpreter_is(tmp_path):
    put(tmp_path / "nvidia-ctk", WRAPPER)
    assert (await found(tmp_path)).path == tmp_path / "nvidia-ctk"


async def test_a_wrapper_without_interpreter_is_passed_over_and_named(tmp_path):
    put(tmp_path / "a/nvidia-ctk", f"#!{tmp_path}/sh -e\n")
    problem = await refused(tmp_path / "a")
    assert (problem.step, problem.reason) == (Step.GENERATE, Reason.TOOLKIT_NOT_FOUND)
    assert problem.subject == f"{tmp_path}/a/nvidia-ctk"
    assert f"it is a script, {tmp_path}/sh is not in this pod" in problem.message
    put(tmp_path / "b/nvidia-ctk")
    assert (await found(tmp_path / "a", tmp_path / "b")).path.parent == tmp_path / "b"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "not there"),
        (lambda path: put(path, mode=0o644), "not executable"),
        (lambda path: path.mkdir(parents=True), "no file, but a directory"),
        (lambda path: path.symlink_to("nowhere"), "not there"),
    ],
)
async def test_what_cannot_be_run_is_not_found_and_says_why(make, why, tmp_path):
    make(tmp_path / "nvidia-ctk")
    problem = await refused(tmp_path)
    assert problem.reason is Reason.TOOLKIT_NOT_FOUND
    assert problem.message == f"nvidia-ctk was not found: {tmp_path}/nvidia-ctk: {why}"
    assert problem.hint


async def test_the_first_place_is_the_subject_and_every_place_is_in_the_message(tmp_path):
    problem = await refused(tmp_path / "a", tmp_path / "b")
    assert problem.subject == f"{tmp_path}/a/nvidia-ctk"
    assert problem.message.endswith(f"{tmp_path}/a/nvidia-ctk: not there; {tmp_path}/b/nvidia-ctk: not there")


async def test_a_file_that_is_replaced_is_another_program(tmp_path):
    put(tmp_path / "nvidia-ctk")
    before = await found(tmp_path)
    assert await found(tmp_path) == before
    put(tmp_path / "new").rename(tmp_path / "nvidia-ctk")
    assert await found(tmp_path) != before


async def test_a_toolkit_has_its_version_and_the_hook_beside_it(tmp_path):
    put(tmp_path / "nvidia-ctk.real")
    processes = Answering(Finished(exit=Exit(code=0), stdout=SAYS))
    files = HostFiles(roots=[])
    assert (await toolkit_of(files, processes, await found(tmp_path))).hook is None
    hook = put(tmp_path / "nvidia-cdi-hook")
    toolkit = await toolkit_of(files, processes, await found(tmp_path))
    assert (toolkit.version.text, toolkit.version.numbers, toolkit.hook) == ("1.17.8", (1, 17), hook)
    put(tmp_path / "nvidia-cdi-hook.real")
    assert (await toolkit_of(files, processes, await found(tmp_path))).hook == tmp_path / "nvidia-cdi-hook.real"
    assert {argv[1:] for argv in processes.argvs} == {("--version",)}


async def test_it_is_given_an_environment_of_its_own_with_its_directory_first():
    processes = Answering(Finished(exit=Exit(code=0), stdout=SAYS))
    await ask_version(processes, Path("/toolkit/nvidia-ctk.real"))
    (env,) = processes.environments
    assert env["PATH"].split(":")[0] == "/toolkit"
    assert set(env) == {"PATH", "LC_ALL"}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1.20.0", (1, 20)),
        ("1.18.0-rc.2", (1, 18)),
        ("1.17.0~rc.1", (1, 17)),
        ("1.19", (1, 19)),
        ("unknown", None),
        ("1.x", None),
        ("", None),
    ],
)
def test_a_version_is_its_major_and_minor(text, numbers):
    assert ToolkitVersion.of(text).numbers == numbers


def test_what_came_with_a_release_is_expected_of_it_and_of_later_ones_and_of_those_without_a_number():
    assert [ToolkitVersion.of(text).has(19) for text in ("1.9.0", "1.18.2", "1.19.0", "2.0.0", "unknown")] == [
        *(False, False),
        *(True, True, True),
    ]


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (Finished(exit=Exit(code=0), stdout=b"busybox 1.36\n"), Reason.TOOLKIT_NOT_FOUND, "is no nvidia-ctk"),
        (Finished(exit=Exit(code=127)), Reason.TOOLKIT_NOT_FOUND, "127"),
        (Finished(exit=Exit(code=-11)), Reason.GENERATE_FAILED, "signal 11"),
        (Finished(exit=Exit(code=None)), Reason.TOOLKIT_NOT_FOUND, "named no version"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), Reason.TOOLKIT_NOT_FOUND, "dynamic linker"),
        (PermissionError(errno.EACCES, "Permission denied"), Reason.TOOLKIT_NOT_FOUND, "Permission denied"),
        (OSError(errno.ENOEXEC, "Exec format error"), Reason.TOOLKIT_NOT_FOUND, "Exec format error"),
    ],
)
async def test_a_program_that_gives_no_version_is_a_reason(answer, reason, words):
    with pytest.raises(ProblemError) as raised:
        await ask_version(Answering(answer), Path("/toolkit/nvidia-ctk"))
    assert raised.value.problem.reason is reason
    assert raised.value.problem.subject == "/toolkit/nvidia-ctk"
    assert words in raised.value.problem.message


async def test_a_program_that_hangs_is_named_with_its_bound():
    processes = Answering(DeadlineExceededError(stderr=b"waiting for the driver\n"))
    with pytest.raises(ToolkitHungError) as raised:
        await ask_version(processes, Path("/toolkit/nvidia-ctk"), deadline_s=2)
    assert raised.value.program == Path("/toolkit/nvidia-ctk")
    problem = raised.value.problem
    assert problem.reason is Reason.STEP_DEADLINE_EXCEEDED
    assert problem.message == "/toolkit/nvidia-ctk --version did not end within 2 s and was killed"
    assert problem.detail == "waiting for the driver\n"
