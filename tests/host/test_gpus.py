"""The real monitor as a process: how it ends, what it needs of the machine, and how large it is."""

import errno
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from actors.gpu.facts import decode_lines
from actors.ports import DriverPlaces, Exit, ProcessIdentity
from sim.world.nvml import Symbol, Trouble
from supervisor.gpu_monitor.libraries import candidates, library_version, module_version
from supervisor.host import gpus as host_gpus
from supervisor.host import procfs
from supervisor.host.gpus import HostGpus
from tests.contract.gpu_nodes import BOUND_S, mock_gpu_node
from tests.host.waiting import eventually, is_gone
from tests.needs import ROOT

PSS_BYTES_MAX = 40 << 20


@pytest.fixture(scope="module")
def mock(tmp_path_factory):
    return mock_gpu_node(tmp_path_factory.mktemp("mock"))


@pytest.fixture
def node(mock):
    yield mock
    mock.restore()


def started(node):
    """A monitor as `HostGpus` starts it, and the end of its stdout that is ours."""
    argv = HostGpus(Starting(None), period_s=0.05)._argv(node.places)
    ours, theirs = socket.socketpair()
    with theirs:
        files = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 1)]
        pid = os.posix_spawn(argv[0], argv, host_gpus._environment(), file_actions=files)
    ours.settimeout(BOUND_S)
    return pid, ours


def first_word(ours):
    data = b""
    while not data.endswith(b"\n"):
        data += ours.recv(1 << 16)
    return decode_lines(data)[0]


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("symbol", [None, Symbol.UUID, Symbol.EVENT_SET_WAIT])
def test_it_ends_with_whoever_listens_even_while_nvml_does_not_return(node, symbol):
    pid, ours = started(node)
    first_word(ours)
    if symbol is not None:
        node.spoil(symbol, Trouble.HANG)
        ours.settimeout(0.5)
        with suppress(TimeoutError):
            while ours.recv(1 << 16):
                pass
    ours.close()
    assert ended(pid) == 0


def test_nvml_is_never_loaded_into_the_supervisor():
    code = "import sys, greenroom, supervisor.running, supervisor.host.composition; print('pynvml' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert said == "False\n"


def test_it_ends_on_sigterm_while_it_waits(node):
    pid, ours = started(node)
    first_word(ours)
    os.kill(pid, signal.SIGTERM)
    with ours:
        assert ended(pid) == -signal.SIGTERM


def test_it_runs_from_our_own_packages_wherever_we_are(node, tmp_path, monkeypatch):
    (tmp_path / "supervisor").mkdir()
    (tmp_path / "supervisor/__init__.py").write_text("raise SystemExit('a stranger')\n")
    monkeypatch.chdir(tmp_path)
    pid, ours = started(node)
    with ours:
        assert first_word(ours)[0].driver == "580.65.06"
    assert ended(pid) == 0


@pytest.mark.anyio
async def test_it_is_owned_and_gone_when_it_is_left(ports, node):
    async with ports.gpus.monitor(node.places) as monitor:
        with anyio.fail_after(BOUND_S):
            assert await monitor.receive()
        (pid,) = monitors()
    await eventually(lambda: is_gone(pid))
    assert is_gone(pid)


def monitors():
    """Those that are children of ours; others on the machine are none of our business."""
    found = []
    for pid in procfs.listed_children():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if b"supervisor.gpu_monitor" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


@pytest.mark.anyio
async def test_an_interpreter_that_is_not_there_is_an_error_of_the_call(ports, node, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")
    with pytest.raises(FileNotFoundError):
        async with ports.gpus.monitor(node.places):
            pass


class Undead:
    """What does not even die of SIGKILL, until it does."""

    identity = ProcessIdentity(pid=4711, start_ticks=1)

    def __init__(self):
        self.exit = None
        self.signals = []

    def signal(self, signum):
        self.signals.append(signum)

    async def wait(self):
        await anyio.sleep_forever()


class Starting:
    """Starts that, and counts how often."""

    def __init__(self, child):
        self.child, self.count = child, 0

    async def spawn_speaking(self, _argv, *, env):
        self.count += 1
        ours, theirs = socket.socketpair()
        theirs.close()
        return self.child, ours


@pytest.mark.anyio
async def test_beside_one_that_hangs_in_the_kernel_no_other_is_started(monkeypatch):
    monkeypatch.setattr(host_gpus, "_END_BOUND_S", 0.01)
    child = Undead()
    starting = Starting(child)
    gpus = HostGpus(starting)
    async with gpus.monitor(DriverPlaces()):
        pass
    assert child.signals == [signal.SIGKILL]
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            async with gpus.monitor(DriverPlaces()):
                pass
        assert (caught.value.errno, starting.count) == (errno.EBUSY, 1)
        assert "4711 hangs" in str(caught.value)
    child.exit = Exit(code=-9)
    async with gpus.monitor(DriverPlaces()):
        pass
    assert starting.count == 2


@pytest.mark.anyio
async def test_an_error_of_the_body_comes_out_and_the_monitor_is_gone(ports, node):
    async def fail():
        async with ports.gpus.monitor(node.places) as monitor:
            await monitor.receive()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert monitors() == []


@pytest.mark.bench
@pytest.mark.anyio
async def test_the_monitor_is_small(ports, node, record_property):
    async with ports.gpus.monitor(node.places) as monitor:
        for _ in range(2):
            await monitor.receive()
        (pid,) = monitors()
        found = sizes(pid)
    for name in ("Pss", "Rss"):
        record_property(f"{name.lower()}_bytes", found[name])
    assert found["Rss"] <= PSS_BYTES_MAX  # which bounds the PSS on a machine where nobody shares our pages


def sizes(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split()[0].removesuffix(":"): int(line.split()[1]) << 10 for line in lines}


# ---- names


def test_the_library_is_looked_for_where_drivers_and_their_installers_put_it():
    found = candidates("/driver")
    assert found[0] == "/driver/usr/lib64/libnvidia-ml.so.1"
    assert "/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1" in found
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib64/libnvidia-ml.so.580.65.06", "580.65.06"),
        ("/usr/lib64/libnvidia-ml.so.570.1", "570.1"),
        ("/usr/lib64/libnvidia-ml.so.1", ""),
        ("", ""),
    ],
)
def test_the_version_of_a_library_is_in_its_name(path, version):
    assert library_version(path) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:05:48 UTC 2025\nGCC version: 12",
            "580.65.06",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (b@h)  Thu\n",
            "570.86.15",
        ),
        ("NVRM version: NVIDIA UNIX aarch64 Kernel Module  570.1\n", "570.1"),
        ("GCC version: gcc 12.2.0\n", ""),
        ("", ""),
    ],
)
def test_the_version_of_the_module_is_in_what_it_tells(text, version):
    assert module_version(text) == version
