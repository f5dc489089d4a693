"""How containers come to be, held against the model, the fake program and the real binary."""

import signal

import anyio
import pytest

from tests.contract.benches import COUNT
from tests.contract.faces import on

# ------------------------------------------------------------------------------------------------ create, start, state


def test_a_created_root_is_a_process_a_gofer_a_pid_file_and_three_files(face):
    @on(face)
    async def _(bench):
        await bench.create("sb", "sleep", "10000")
        assert await bench.names() == {"sb_sandbox:sb.state", "sb_sandbox:sb.lock", "runsc-sb.sock"}
        pid, gofer = await bench.pid(), await bench.gofer("sb")
        assert pid != gofer
        assert await bench.is_running(pid)
        assert await bench.is_running(gofer)
        document = (await bench.ok("state", "sb")).document()
        assert document["pid"] == pid
        assert document["id"] == "sb"
        assert document["status"] == "created"
        assert document["bundle"] == str(bench.bundle_path("sb"))
        assert document["annotations"]["io.kubernetes.cri.container-type"] == "sandbox"


def test_the_sandbox_outlives_its_command_as_our_child_in_a_session_of_its_own(face):
    @on(face)
    async def _(bench):
        await bench.up()
        sandbox = await bench.processes.adopt(await bench.pid())
        gofer = await bench.processes.adopt(await bench.gofer("sb"))
        sandbox.signal(signal.SIGKILL)
        assert (await sandbox.wait()).code == -signal.SIGKILL
        with anyio.fail_after(60):
            await gofer.wait()
        sandbox.close()
        gofer.close()


def test_a_sub_containers_gofer_is_born_when_it_is_started(face):
    @on(face)
    async def _(bench):
        await bench.up()
        await bench.create("c1", "sh", "-c", COUNT)
        assert await bench.gofer("c1") == 0
        assert await bench.statuses("sb", "c1") == ["running", "created"]
        assert int(await bench.files.read(bench.pid_file("c1"), limit_bytes=32)) == await bench.pid()
        await bench.ok("start", "c1", output="c1")
        assert await bench.is_running(await bench.gofer("c1"))
        assert await bench.status("c1") == "running"


def test_stdio_of_the_root_is_taken_at_create_and_of_a_sub_container_at_start(face):
    @on(face)
    async def _(bench):
        await bench.create("sb", "sh", "-c", "echo root; exec sleep 1000")
        await bench.ok("start", "sb", output="never")
        await bench.create("c1", "sh", "-c", "echo sub; exec sleep 1000")
        await bench.ok("start", "c1", output="other")
        assert await bench.counted("sb", 1) == ["root"]
        assert await bench.counted("other", 1) == ["sub"]
        assert await bench.lines("never") == []
        assert await bench.lines("c1") == []


def test_a_container_may_be_created_before_its_root_is_started(face):
    @on(face)
    async def _(bench):
        await bench.create("sb", "sleep", "10000")
        await bench.create("c1", "sh", "-c", COUNT)
        await bench.ok("start", "sb")
        await bench.ok("start", "c1", output="c1")
        assert (await bench.counted("c1", 3))[:3] == ["0", "1", "2"]


def test_a_sub_container_that_is_started_before_its_root_kills_the_sandbox(face):
    @on(face)
    async def _(bench):
        await bench.create("sb", "sleep", "10000")
        await bench.create("c1", "sh", "-c", COUNT)
        said = await bench.run("start", "c1")
        assert said.code == 128
        assert 'urpc method "containerManager.StartSubcontainer" failed: EOF' in said.error
        await bench.ended("sb")
        assert await bench.status("c1") == "stopped"


def test_a_sub_container_needs_its_sandbox(face):
    @on(face)
    async def _(bench):
        bundle = await bench.bundle("c1", "sleep", "1")
        path = f"{bench.root}/sb_sandbox:sb.state"
        assert await bench.fails("create", f"--bundle={bundle}", "c1") == (
            f"creating container: cannot load sandbox: open {path}: no such file or directory"
        )
        assert await bench.names() == {"sb_sandbox:sb.lock"}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("/nope", "creating process: failed to load /nope: no such file or directory"),
        ("nope", 'error finding executable "nope" in PATH [/bin]: no such file or directory'),
    ],
)
def test_a_command_that_does_not_exist_fails_at_start_and_the_container_stays_created(face, command, why):
    @on(face)
    async def _(bench):
        await bench.up()
        await bench.create("c1", command)
        assert await bench.fails("start", "c1") == f"starting container: starting sub-container [{command}]: {why}"
        assert await bench.statuses("sb", "c1") == ["running", "created"]
        assert await bench.fails("wait", "c1") == 'waiting on container "c1": container "c1" not started'
        await bench.ok("delete", "c1")
        bundle = await bench.bundle("c2", command)
        assert await bench.fails("run", "--detach", f"--bundle={bundle}", "c2") == (
            f"running container: starting container: starting sub-container [{command}]: {why}"
        )
        assert await bench.fails("state", "c2") == "loading container: file does not exist"


def test_a_root_that_cannot_start_leaves_the_sandbox_created(face):
    @on(face)
    async def _(bench):
        await bench.create("sb", "/nope")
        assert await bench.fails("start", "sb") == (
            "starting container: starting root container: starting sandbox: "
            "creating process: failed to load /nope: no such file or directory"
        )
        assert await bench.status("sb") == "created"


def test_a_rootfs_that_is_not_there_fails_the_roots_create_and_a_sub_containers_start(face):
    @on(face)
    async def _(bench):
        nowhere = {"root": {"path": f"{bench.directory}/nowhere"}}
        bundle = await bench.bundle("sb", "sleep", "10", **nowhere)
        error = await bench.fails("create", f"--bundle={bundle}", f"--pid-file={bench.pid_file('sb')}", "sb")
        assert error == (
            "creating container: cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF"
        )
        assert await bench.names() == set()
        assert await bench.files.stat(bench.pid_file("sb")) is None
        await bench.up()
        await bench.create("c1", "sleep", "10", **nowhere)
        assert "reading mounts file" in await bench.fails("start", "c1")
        assert await bench.statuses("sb", "c1") == ["running", "created"]


def test_another_user_than_root_needs_to_be_let_into_the_rootfs(face):
    @on(face)
    async def _(bench):
        closed = await bench.closed_rootfs()
        nobody = {"user": {"uid": 65534, "gid": 65534}}
        await bench.create("sb", "/bin/sleep", "10", root={"path": closed}, process=nobody)
        assert await bench.fails("start", "sb") == (
            "starting container: starting root container: starting sandbox: "
            "creating process: failed to load /bin/sleep: permission denied"
        )


def test_an_id_that_exists_is_refused_and_the_living_container_loses_its_state(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        bundle = str(bench.bundle_path("c1"))
        assert await bench.fails("create", f"--bundle={bundle}", "c1") == (
            "creating container: cannot lock container metadata file: container already exists"
        )
        assert await bench.fails("state", "c1") == "loading container: file does not exist"
        lines = await bench.lines("c1")
        await bench.counted("c1", len(lines) + 3)


def test_wrong_states_are_refused_with_the_state(face):
    @on(face)
    async def _(bench):
        await bench.create("sb", "sleep", "10000")
        assert await bench.fails("kill", "sb", "TERM") == 'cannot signal container "sb" in state created'
        assert await bench.fails("resume", "sb") == 'resume failed: cannot resume container "sb" in state created'
        assert (await bench.run("pause", "sb")).code == 2
        assert await bench.fails("exec", "sb", "true") == (
            'executing processes for container: executing command "true" in sandbox: container "sb" not started'
        )
        assert await bench.fails("ps", "sb") == (
            'getting processes for container: cannot get processes of container "sb" in state created'
        )
        await bench.ok("start", "sb")
        assert await bench.fails("start", "sb") == ('starting container: cannot start container "sb" in state running')
        assert await bench.fails("resume", "sb") == 'resume failed: cannot resume container "sb" in state running'
        assert await bench.fails("delete", "sb") == "cannot delete container that is not stopped without --force flag"
