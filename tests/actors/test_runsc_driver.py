"""The driver: what it calls, with which log, deadline and output, and what it makes of each end."""

import json
from pathlib import Path

import anyio
import attrs
import pytest

from actors.ports import AppendTo, DeadlineExceededError, Exit, Finished, Output
from actors.runsc.driver import Runsc, Target
from actors.runsc.errors import Call
from actors.runsc.flags import GlobalFlags
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.memory_files import DIRECTORY, MemoryFiles
from tests.actors.scripted_processes import ScriptedProcesses

pytestmark = pytest.mark.anyio

ACTIVATION = Path("/s/a1")
ROOT, WEB = Target.of("pause", "c0"), Target.of("web", "c1", env=["TOKEN=hunter2"])
LOG = AppendTo(Path("/logs/web.log"))


def driver(answer=None, content=()):
    files = MemoryFiles({ACTIVATION: DIRECTORY, **dict(content)})
    processes = ScriptedProcesses(answer)
    runsc = Runsc(
        path=Path("/r/runsc"), flags=GlobalFlags(), processes=processes, files=files, root=ACTIVATION / "runsc"
    )
    return runsc, processes, files


def log_of(argv):
    return Path(next(word for word in argv if word.startswith("--log=")).removeprefix("--log="))


def failing(files, message, code=128, stderr=b""):
    """An answer that fails as runsc does: words in the log, and 128."""

    def answer(_verb, argv):
        if message is not None:
            files().content[log_of(argv)] = json.dumps({"msg": message, "level": "error"}).encode()
        return Finished(exit=Exit(code=code), stderr=stderr)

    return answer


def failing_driver(message, **more):
    runsc, processes, files = driver()
    processes.answer = failing(lambda: files, message, **more)
    return runsc, processes, files


async def problem_of(act):
    with pytest.raises(ProblemError) as failed:
        await act
    return failed.value.problem


COVERED = attrs.evolve(WEB, cover=("/s/a1/cover/cover", "/images/web", "options"))


async def test_what_starts_a_gofer_is_begun_by_what_covers_its_rootfs_and_nothing_else_is():
    runsc, processes, _ = driver()
    await runsc.create_sub(COVERED, bundle=Path("/b"))
    await runsc.start_sub(COVERED, output=LOG)
    await runsc.restore_sub(COVERED, bundle=Path("/b"), image=Path("/i"), output=LOG)
    await runsc.delete_sub(COVERED)
    begun_by = [argv[: argv.index("/r/runsc")] for argv in processes.argvs]
    assert begun_by == [(), COVERED.cover, COVERED.cover, ()]


async def test_a_rootfs_that_cannot_be_covered_is_told_as_that():
    runsc, _, _ = failing_driver(None, code=125)
    problem = await problem_of(runsc.start_sub(COVERED, output=LOG))
    assert (problem.step, problem.reason, problem.subject) == (Step.CREATE, Reason.RUNTIME_FAILED, "web")
    assert "laid over the rootfs" in problem.message
    problem = await problem_of(runsc.start_sub(WEB, output=LOG))
    assert "laid over" not in problem.message


async def test_every_command_has_the_same_flags_its_own_log_and_a_bare_environment():
    runsc, processes, files = driver()
    await runsc.start_root(ROOT)
    await runsc.start_sub(WEB, output=LOG)
    await runsc.pause(ROOT)
    first, *others = processes.argvs
    assert first[:2] == ("/r/runsc", "--root=/s/a1/runsc")
    assert len({log_of(argv) for argv in processes.argvs}) == 3
    assert all(argv[3:8] == first[3:8] for argv in others)
    assert all(set(env) == {"PATH"} for env in processes.environments)
    assert set(files.content) == {ACTIVATION}


async def test_a_containers_output_goes_only_where_its_stdio_is_taken():
    content = {ACTIVATION / "c0.pid": b"77"}
    runsc, processes, _ = driver(content=content)
    bundle, image = Path("/b"), Path("/i")
    assert await runsc.create_root(ROOT, bundle=bundle, output=LOG) == 77
    await runsc.create_sub(WEB, bundle=bundle)
    await runsc.start_root(ROOT)
    await runsc.start_sub(WEB, output=LOG)
    assert await runsc.restore_root(ROOT, bundle=bundle, image=image, output=LOG) == 77
    await runsc.restore_sub(WEB, bundle=bundle, image=image, output=LOG)
    await runsc.checkpoint(ROOT, image=image)
    assert processes.outputs == [LOG, Output.DISCARD, Output.DISCARD, LOG, LOG, LOG, Output.CAPTURE]


@pytest.mark.parametrize("content", [{}, {ACTIVATION / "c0.pid": b"x"}, {ACTIVATION / "c0.pid": b"1"}])
async def test_a_sandbox_without_a_pid_is_no_sandbox(content):
    runsc, _, _ = driver(content=content)
    problem = await problem_of(runsc.create_root(ROOT, bundle=Path("/b"), output=LOG))
    assert (problem.step, problem.reason, problem.subject) == (Step.CREATE, Reason.RUNTIME_FAILED, "pause")


@pytest.mark.parametrize(
    ("act", "step"),
    [
        (lambda runsc: runsc.create_sub(WEB, bundle=Path("/b")), Step.CREATE),
        (lambda runsc: runsc.restore_sub(WEB, bundle=Path("/b"), image=Path("/i"), output=LOG), Step.RESTORE),
        (lambda runsc: runsc.pause(WEB), Step.SUSPEND),
        (lambda runsc: runsc.checkpoint(WEB, image=Path("/i")), Step.SUSPEND),
        (lambda runsc: runsc.resume(WEB, deadline_s=1), Step.THAW),
        (lambda runsc: runsc.delete_sub(WEB), Step.TEARDOWN),
        (lambda runsc: runsc.kill(WEB, "TERM"), Step.TEARDOWN),
        (lambda runsc: runsc.state(WEB), Step.SUPERVISE),
        (lambda runsc: runsc.wait(WEB, deadline_s=1), Step.SUPERVISE),
        (lambda runsc: runsc.list_containers(WEB), Step.SUPERVISE),
    ],
)
async def test_a_failure_belongs_to_its_step_and_container_and_carries_runscs_words(act, step):
    runsc, _, files = failing_driver("it broke: hunter2", stderr=b"not this")
    problem = await problem_of(act(runsc))
    assert (problem.step, problem.subject, problem.reason) == (step, "web", Reason.RUNTIME_FAILED)
    assert (problem.message, problem.detail) == ("it broke: ***", "it broke: ***")
    assert set(files.content) == {ACTIVATION}


@pytest.mark.parametrize(("code", "says"), [(128, "exit code 128"), (-9, "signal 9"), (None, "somebody else")])
async def test_a_failure_without_words_tells_how_it_ended(code, says):
    runsc, _, _ = failing_driver(None, code=code)
    assert says in (await problem_of(runsc.pause(ROOT))).message


async def test_a_log_that_an_earlier_life_left_is_not_believed():
    runsc, processes, files = driver()
    files.content[ACTIVATION / "000001-pause.log"] = b'{"msg":"no space left on device"}'
    processes.answer = failing(lambda: files, None, stderr=b"usage: pause")
    assert (await problem_of(runsc.pause(ROOT))).message == "usage: pause"


@pytest.mark.parametrize(
    ("error", "reason", "says"),
    [
        (DeadlineExceededError(), Reason.STEP_DEADLINE_EXCEEDED, "within 30 s"),
        (FileNotFoundError(2, "No such file or directory"), Reason.RUNTIME_UNAVAILABLE, "No such file"),
        (PermissionError(13, "Permission denied"), Reason.RUNTIME_UNAVAILABLE, "Permission denied"),
    ],
)
async def test_a_command_that_does_not_run_or_does_not_end_has_its_reason(error, reason, says):
    def answer(_verb, _argv):
        raise error

    runsc, _, _ = driver(answer)
    problem = await problem_of(runsc.pause(ROOT))
    assert problem.reason is reason
    assert says in problem.message


@pytest.mark.parametrize("said", [("log", b""), (None, b"stderr")], ids=["in its log", "on stderr"])
async def test_what_a_command_said_before_it_was_killed_at_its_deadline_is_told_without_secrets(said):
    message, stderr = said
    runsc, processes, files = driver()

    def answer(_verb, argv):
        if message is not None:
            files.content[log_of(argv)] = json.dumps({"msg": f"{message} waits for hunter2"}).encode()
        raise DeadlineExceededError(stderr=stderr and stderr + b" waits for hunter2")

    processes.answer = answer
    problem = await problem_of(runsc.state(WEB))
    assert problem.reason is Reason.STEP_DEADLINE_EXCEEDED
    assert problem.detail == f"{message or stderr.decode()} waits for ***"


async def test_an_answer_that_cannot_be_read_is_runscs_failure():
    runsc, _, _ = driver(lambda _verb, _argv: Finished(exit=Exit(code=0), stdout=b"<html>"))
    for ask in (runsc.state(WEB), runsc.wait(WEB, deadline_s=1), runsc.list_containers(WEB), runsc.ps(WEB)):
        assert (await problem_of(ask)).reason is Reason.RUNTIME_FAILED


async def test_a_command_inside_a_container_may_end_with_128_itself():
    runsc, _, files = driver(lambda _verb, _argv: Finished(exit=Exit(code=128), stdout=b"out"))
    finished = await runsc.exec_in(WEB, ["x"], deadline_s=1)
    assert (finished.exit.code, finished.stdout) == (128, b"out")
    runsc, _, _ = failing_driver("executing command: failed to load /x: no such file or directory")
    assert (await problem_of(runsc.exec_in(WEB, ["/x"], deadline_s=1))).reason is Reason.COMMAND_NOT_FOUND
    assert set(files.content) == {ACTIVATION}


async def test_a_confined_command_is_looked_up_in_the_containers_own_path():
    runsc, processes, _ = driver()
    target = Target.of("web", "c1", env=("A=1", "PATH=/app/bin::/bin", "PATH=/later"))
    confined = attrs.evolve(runsc, confine=Path("/s/confine"))
    for each in (confined, runsc):
        await each.exec_in(target, ["x", "y"], deadline_s=1)
    assert processes.argvs[0][-6:] == ("confine", "/app/bin/x", "/bin/x", "", "x", "y")
    assert processes.argvs[1][-3:] == ("c1", "x", "y")
    assert processes.inputs == [Path("/s/confine"), None]


async def given_up(call):
    """Cancel a call once it waits for its command."""

    async def wait():
        await call

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()


async def test_a_command_that_is_given_up_is_killed_inside_with_all_below_it_children_first():
    tables = [b"UID PID PPID\n0 4 0\n0 5 0\n0 7 5\n0 9 7\n", b"UID PID PPID\n0 4 0\n"]

    def answer(verb, argv):
        if verb == "exec":
            name = next(word for word in argv if word.startswith("--internal-pid-file="))
            files.content[Path(name.partition("=")[2])] = b"5"
            return anyio.sleep_forever()
        return Finished(exit=Exit(code=0), stdout=tables.pop(0)) if verb == "ps" else None

    runsc, processes, files = driver(answer)
    await given_up(runsc.exec_in(WEB, ["x"], deadline_s=60))
    kills = [next(word for word in argv if "--pid=" in word) for argv in processes.argvs if "kill" in argv]
    assert kills == ["--pid=9", "--pid=7", "--pid=5"]
    assert set(files.content) == {ACTIVATION}


async def test_a_command_that_never_began_inside_leaves_nothing_to_kill():
    runsc, processes, _ = driver(lambda verb, _argv: anyio.sleep_forever() if verb == "exec" else None)
    await given_up(runsc.exec_in(WEB, ["x"], deadline_s=60))
    assert [verb for verb, _ in processes.calls] == ["exec"]


async def test_any_command_can_be_run_with_a_call_of_ones_own():
    runsc, processes, _ = driver()
    await runsc.run(Call(step=Step.VERIFY, verb="tar", subject="web"), ("tar", "c1"), deadline_s=1)
    assert processes.calls == [("tar", "c1")]
