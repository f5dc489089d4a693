"""The worker in a container of a real OCI runtime: as its PID 1, and below a tiny init; with gVisor, unprivileged."""

import shutil
import signal
from functools import partial

import pytest

from tests.actors.stage import make_rootfs
from tests.needs import Tool, find, need
from tests.real.oci import CAPABILITIES, WorkerContainer, make_root, wait_for
from tests.real.process import wait_until
from tests.real.scenery import assignment, counting, whole_lines

pytestmark = [pytest.mark.runsc, pytest.mark.long]

ORPHANS = 50
LEAVES_ORPHANS = f"i=0; while [ $i -lt {ORPHANS} ]; do (/bin/busybox sleep 0.0$((i % 10)) &); i=$((i+1)); done"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    need(Tool.RUNSC, Tool.BUSYBOX, Tool.ROOT, Tool.NAMESPACES, Tool.OCI_RUNTIME, Tool.TINI)
    directory = tmp_path_factory.mktemp("images")
    make_rootfs(directory / "actors" / "busybox")
    make_root(directory / "worker")
    shutil.copy(str(find(Tool.TINI)), directory / "worker" / "bin" / "tini")
    return directory


@pytest.fixture
def contained(images, tmp_path):
    """Makes the container of this test, and leaves nothing of it."""
    made = []

    def make(**more):
        container = WorkerContainer(tmp_path, image=images / "worker", images=images / "actors", **more)
        made.append(container)
        return container

    yield make
    for container in made:
        container.give_up()


def is_asked_through_its_init(container):
    for signum, told in ((signal.SIGHUP, b'"not_reloaded"'), (signal.SIGUSR1, b'"waits"')):
        container.send(signum)
        wait_until(lambda told=told: told in container.log.read_bytes())


def lives_there(container, images, *, meanwhile=lambda _container: None):
    """Run an actor, leave orphans, and drain: PID 1 ends with 0, and nothing was a zombie when it was quiet."""
    container.begin("--on-drain", "suspend")
    container.start(assignment("a1", counting("c1", images / "actors" / "busybox")))
    log = container.state.actor("a1").log("c1")
    wait_until(lambda: len(whole_lines(log)) > 3)
    container.execute(LEAVES_ORPHANS)
    wait_until(lambda: not container.zombies() and not container.running_of("busybox"))
    meanwhile(container)
    code = container.end()
    assert (code, container.status_file("a1")["state"], container.left()) == (0, "Suspended", [])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_as_pid_1_it_runs_actors_in_gvisor_takes_orphans_and_ends_the_container_with_0(contained, images, backend):
    container = contained(flags=("--backend", backend, "--log-level", "debug"))
    lives_there(container, images)
    assert b"this is PID 1" in container.log.read_bytes()


def test_below_a_tiny_init_it_is_a_subreaper_and_everything_else_is_the_same(contained, images):
    container = contained(entry=("/bin/tini", "--"), flags=("--log-level", "debug"))
    lives_there(container, images, meanwhile=is_asked_through_its_init)
    assert b"as a subreaper it takes the orphans of what it starts" in container.log.read_bytes()


def test_killed_in_a_container_it_takes_everything_with_it_and_the_next_container_says_what_became_of_the_actor(
    contained, images
):
    container = contained()
    container.begin()
    container.start(assignment("a1", counting("c1", images / "actors" / "busybox")))
    container.send(signal.SIGKILL)
    assert wait_for(container) == 128 + 9
    container.begin()
    status = wait_until(partial(ended, container))
    assert (status["state"], status["error"]["reason"]) == ("Failed", "SupervisorRestarted")
    assert container.end() == 0


def ended(container):
    status = container.status_file("a1")
    return status if status["state"] == "Failed" else None


@pytest.mark.parametrize("name", ["CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETFCAP"])
def test_without_a_capability_that_a_start_needs_it_ends_at_once_and_names_it(contained, name):
    container = contained(capabilities=[each for each in CAPABILITIES if each != name])
    last = refused_at_once(container)
    assert last.startswith("error: CapabilityMissing: no sandbox can be started without ")
    assert name in last


@pytest.mark.parametrize("name", ["mount", "umount2", "pivot_root", "chroot", "ptrace"])
def test_with_a_seccomp_profile_that_refuses_what_gvisor_needs_it_ends_at_once_and_names_it(contained, name):
    last = refused_at_once(contained(refused_calls=[name]))
    assert last == f"error: SyscallRefused: gVisor cannot do without {name}, refused to this process"


def refused_at_once(container):
    """The last line of a worker that is refused before it holds anything."""
    container.begin_without_waiting()
    assert wait_for(container) == 1
    assert not list(container.state.root.iterdir())
    return container.log.read_text().splitlines()[-1]
