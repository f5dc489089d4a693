"""The Processes port, held against the simulated one and the real one with the few commands that both have."""

import errno
import signal

import anyio
import pytest

from actors.ports import AppendTo, DeadlineExceededError, Output, ProcessIdentity
from tests.contract.faces import on

ENV = {"PATH": "/usr/bin:/bin"}
SLEEP, TRUE, FALSE = "/bin/sleep", "/bin/true", "/bin/false"


async def sleeping(bench, word="1000"):
    return await bench.processes.spawn(
        [SLEEP, word], env=ENV, stdout=Output.DISCARD, stderr=AppendTo(bench.directory / "sleep.log")
    )


def test_a_command_ends_with_its_code(stand_in):
    @on(stand_in)
    async def _(bench):
        for path, code in ((TRUE, 0), (FALSE, 1)):
            finished = await bench.processes.run([path], deadline_s=60, env=ENV)
            assert (finished.exit.code, finished.stdout, finished.stderr) == (code, b"", b"")


def test_a_stdin_that_is_not_there_is_an_error_of_the_call(stand_in):
    @on(stand_in)
    async def _(bench):
        with pytest.raises(FileNotFoundError):
            await bench.processes.run([TRUE], deadline_s=60, env=ENV, stdin=bench.directory / "absent")
        path = bench.directory / "given"
        await bench.files.replace(path, b"to be read")
        assert (await bench.processes.run([TRUE], deadline_s=60, env=ENV, stdin=path)).exit.code == 0


def test_what_cannot_be_executed_is_an_error_of_the_call(stand_in):
    @on(stand_in)
    async def _(bench):
        with pytest.raises(FileNotFoundError):
            await bench.processes.run(["/bin/no-such-program"], deadline_s=60, env=ENV)
        for argv in ([], ["true"]):
            with pytest.raises(ValueError, match="absolute path"):
                await bench.processes.run(argv, deadline_s=60, env=ENV)
        log = AppendTo(bench.directory / "nowhere" / "log")
        with pytest.raises(FileNotFoundError):
            await bench.processes.run([TRUE], deadline_s=60, env=ENV, stdout=log)


def test_a_command_that_does_not_end_is_killed_at_its_deadline(stand_in):
    @on(stand_in)
    async def _(bench):
        with pytest.raises(DeadlineExceededError):
            await bench.processes.run([SLEEP, "1001"], deadline_s=0.05, env=ENV)
        assert await bench.processes.find(argument="1001") == ()


def test_a_command_whose_caller_is_cancelled_is_killed(stand_in):
    @on(stand_in)
    async def _(bench):
        with anyio.move_on_after(0.05):
            await bench.processes.run([SLEEP, "1002"], deadline_s=60, env=ENV)
        assert await bench.processes.find(argument="1002") == ()


def test_a_long_lived_command_is_owned_signalled_and_waited_for_by_several(stand_in):
    @on(stand_in)
    async def _(bench):
        child = await sleeping(bench)
        assert await bench.processes.is_alive(child.identity)
        with anyio.move_on_after(0.02) as scope:
            await child.wait()
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            codes = []

            async def wait():
                codes.append((await child.wait()).code)

            group.start_soon(wait)
            group.start_soon(wait)
            child.signal(signal.SIGTERM)
        assert codes == [-15, -15]
        child.signal(signal.SIGKILL)
        assert not await bench.processes.is_alive(child.identity)
        assert (await bench.files.stat(bench.directory / "sleep.log")).mode & 0o777 == 0o600


def test_the_output_of_a_long_lived_command_is_not_captured(stand_in):
    @on(stand_in)
    async def _(bench):
        with pytest.raises(ValueError, match="long-lived"):
            await bench.processes.spawn([SLEEP, "1"], env=ENV, stdout=Output.CAPTURE, stderr=Output.DISCARD)


def test_a_child_that_is_given_up_lives_on_and_its_zombie_is_somebody_elses(stand_in):
    @on(stand_in)
    async def _(bench):
        child = await sleeping(bench)
        child.close()
        with pytest.raises(anyio.ClosedResourceError):
            await child.wait()
        assert await bench.processes.is_alive(child.identity)
        await bench.processes.kill_and_wait(child.identity, deadline_s=60)
        assert not await bench.processes.is_alive(child.identity)


def test_processes_are_found_by_an_argument_or_how_one_begins(stand_in):
    @on(stand_in)
    async def _(bench):
        first, second = await sleeping(bench, "1003.1"), await sleeping(bench, "1003.2")
        assert await bench.processes.find(argument="1003.1") == (first.identity,)
        assert await bench.processes.find(argument="1003") == ()
        assert await bench.processes.find_arguments(prefix="1003.") == (
            (first.identity, "1003.1"),
            (second.identity, "1003.2"),
        )
        for child in (first, second):
            child.signal(signal.SIGKILL)
            await child.wait()
        assert await bench.processes.find_arguments(prefix="1003.") == ()


def test_only_children_are_adopted_and_only_once(stand_in):
    @on(stand_in)
    async def _(bench):
        for pid in (1, 1 << 22):
            with pytest.raises(ProcessLookupError):
                await bench.processes.adopt(pid)
        child = await sleeping(bench)
        with pytest.raises(OSError, match="owned already") as caught:
            await bench.processes.adopt(child.identity.pid)
        assert caught.value.errno == errno.EBUSY
        child.close()
        again = await bench.processes.adopt(child.identity.pid)
        assert again.identity == child.identity
        again.signal(signal.SIGKILL)
        assert (await again.wait()).code == -9


def test_what_was_given_up_is_reclaimed_by_its_identity_and_only_once(stand_in):
    @on(stand_in)
    async def _(bench):
        child = await sleeping(bench)
        with pytest.raises(OSError, match="owned already") as caught:
            await bench.processes.reclaim(child.identity)
        assert caught.value.errno == errno.EBUSY
        child.close()
        again = await bench.processes.reclaim(child.identity)
        assert again.identity == child.identity
        again.signal(signal.SIGKILL)
        assert (await again.wait()).code == -9  # it is a child of ours, if an earlier life has owned it
        for gone in (child.identity, ProcessIdentity(pid=1 << 22, start_ticks=1)):
            with pytest.raises(ProcessLookupError):
                await bench.processes.reclaim(gone)


def test_a_process_of_that_pid_but_another_start_is_not_reclaimed(stand_in):
    @on(stand_in)
    async def _(bench):
        child = await sleeping(bench)
        child.close()
        other = ProcessIdentity(pid=child.identity.pid, start_ticks=child.identity.start_ticks + 1)
        with pytest.raises(ProcessLookupError):
            await bench.processes.reclaim(other)
        await bench.processes.kill_and_wait(child.identity, deadline_s=60)


def test_a_process_of_that_pid_but_another_start_is_not_killed(stand_in):
    @on(stand_in)
    async def _(bench):
        child = await sleeping(bench)
        other = ProcessIdentity(pid=child.identity.pid, start_ticks=child.identity.start_ticks + 1)
        assert not await bench.processes.is_alive(other)
        await bench.processes.kill_and_wait(other, deadline_s=60)
        assert await bench.processes.is_alive(child.identity)
        child.signal(signal.SIGKILL)
        await child.wait()


def test_a_stopped_process_is_alive_and_dies_of_sigkill(stand_in):
    @on(stand_in)
    async def _(bench):
        child = await sleeping(bench)
        child.signal(signal.SIGSTOP)
        assert await bench.processes.is_alive(child.identity)
        await bench.processes.kill_and_wait(child.identity, deadline_s=60)
        assert (await child.wait()).code == -9


def test_what_we_use_ourselves_is_told(stand_in):
    @on(stand_in)
    async def _(bench):
        usage = await bench.processes.own_usage()
        assert usage.cpu_s >= 0
        assert usage.resident_bytes >= 0
        assert usage.proportional_bytes is None or usage.proportional_bytes >= 0
        assert usage.open_files_max >= usage.open_files
        assert usage.threads >= 1
        assert usage.reaped >= 0
