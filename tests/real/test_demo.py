"""`greenroom demo` for real, and what becomes of it when it is asked to end or may not speak."""

import signal
import subprocess

import pytest

from tests.needs import Tool, need
from tests.real.onlookers import pids_below
from tests.real.process import ENVIRONMENT, GREENROOM, wait_until

pytestmark = pytest.mark.runsc

BOUND_S = 300.0
"""It does everything that there is, one thing after the other."""

IN_BACKGROUND = ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
"""As a shell starts what it has in its background: Ctrl-C is not for that."""


@pytest.fixture
def scratch(tmp_path_factory, rootfs):
    """Where the demo makes its directory; the path of a socket has room in it."""
    return tmp_path_factory.mktemp("d")


def began(scratch, *prefix, stdout):
    argv = [*prefix, *GREENROOM, "demo"]
    return subprocess.Popen(
        argv, stdout=stdout, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, "TMPDIR": str(scratch)}
    )


def left(scratch):
    return [*map(str, scratch.iterdir()), *map(str, pids_below(scratch))]


def played(scratch, *prefix):
    """The exit code, and the lines that were told, of one that comes to its end."""
    with began(scratch, *prefix, stdout=subprocess.PIPE) as demo:
        try:
            out, err = demo.communicate(timeout=BOUND_S)
        finally:
            demo.kill()
    assert (demo.returncode, err) == (0, "")
    return out.splitlines()


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param((), id="with its NVML"),
        pytest.param(("env", "PATH=/nowhere"), id="without a compiler", marks=pytest.mark.long),
    ],
)
def test_each_container_sees_its_own_gpus_and_after_the_resume_knows_which_it_had(scratch, prefix):
    need(Tool.MKNOD)
    lines = played(scratch, *prefix)
    rows = [line.split() for line in lines if line.startswith(("  trainer ", "  eval ", "  logger "))]
    control = ["nvidia-uvm", "nvidia-uvm-tools"]
    trainer, evaluator = (["1", *control, node, "nvidiactl", "void", "0:"] for node in ("nvidia2", "nvidia3"))
    assert rows == [
        ["trainer", *trainer, "nvidia2"],
        ["eval", *evaluator, "nvidia3"],
        ["logger", "0", "-", "-", "-"],
        ["trainer", *trainer, "nvidia3,", "was", "nvidia2"],
        ["eval", *evaluator, "nvidia5,", "was", "nvidia3"],
        ["logger", "0", "-", "-", "-"],
    ]
    assert lines[-1].startswith("proven: each container saw exactly the GPUs that it claims")
    assert left(scratch) == []


def test_where_no_device_nodes_can_be_made_one_line_says_so_and_the_rest_is_played(scratch):
    need(Tool.SETPRIV)
    lines = played(scratch, "setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod")
    proven, empty, last = lines[-3:]
    assert proven.startswith("proven: three containers in one gVisor sandbox")
    assert empty == ""
    assert last.startswith("without GPUs, as no mock GPU node can be made here: device nodes are made by root")
    assert left(scratch) == []


@pytest.mark.parametrize(
    "told", ["Creating", "Running", "Suspending", "Restoring", pytest.param("Injecting", marks=pytest.mark.long)]
)
def test_a_demo_in_the_background_that_is_asked_to_end_undoes_everything(scratch, tmp_path, told):
    out = tmp_path / "out"
    with out.open("w") as stdout, began(scratch, *IN_BACKGROUND, stdout=stdout) as demo:
        try:
            wait_until(lambda: f"-> {told}" in out.read_text())
            for _ in range(2):
                demo.send_signal(signal.SIGTERM)
            _, err = demo.communicate(timeout=BOUND_S)
        finally:
            demo.kill()
    assert (demo.returncode, err.strip()) == (130, "")
    assert left(scratch) == []


def test_one_that_is_asked_to_end_while_its_gpu_node_is_made_undoes_that_too(scratch, tmp_path):
    need(Tool.MKNOD)
    compiler, marker = tmp_path / "cc", tmp_path / "began"
    compiler.write_text(f"#!/bin/sh\n: > {marker}\nexec /bin/sleep 1000\n")
    compiler.chmod(0o755)
    with began(scratch, "env", f"PATH={tmp_path}", stdout=subprocess.PIPE) as demo:
        try:
            wait_until(marker.exists)
            demo.send_signal(signal.SIGTERM)
            out, err = demo.communicate(timeout=BOUND_S)
        finally:
            demo.kill()
    assert (demo.returncode, out, err.strip()) == (130, "", "")
    assert left(scratch) == []


def test_a_demo_that_may_not_speak_says_so_once_and_undoes_everything(scratch):
    with open("/dev/full", "w") as stdout, began(scratch, stdout=stdout) as demo:  # noqa: PTH123 - no path of ours
        try:
            _, err = demo.communicate(timeout=BOUND_S)
        finally:
            demo.kill()
    assert demo.returncode == 1
    assert err.splitlines()[-1] == "error: OutputUnwritable: stdout cannot be written: No space left on device"
    assert len(err.splitlines()) == 2
    assert left(scratch) == []
