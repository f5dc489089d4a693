"""`greenroom demo` for real, and what becomes of it when it is asked to end or may not speak."""

import signal
import subprocess

import pytest

from tests.real.onlookers import pids_below
from tests.real.process import ENVIRONMENT, GREENROOM, SOON_S, wait_until

pytestmark = pytest.mark.runsc

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


@pytest.mark.parametrize("told", ["Creating", "Running", "Suspending", "Restoring"])
def test_a_demo_in_the_background_that_is_asked_to_end_undoes_everything(scratch, tmp_path, told):
    out = tmp_path / "out"
    with out.open("w") as stdout, began(scratch, *IN_BACKGROUND, stdout=stdout) as demo:
        try:
            wait_until(lambda: f"-> {told}" in out.read_text())
            for _ in range(2):
                demo.send_signal(signal.SIGTERM)
            _, err = demo.communicate(timeout=SOON_S)
        finally:
            demo.kill()
    assert (demo.returncode, err.strip()) == (130, "")
    assert left(scratch) == []


def test_a_demo_that_may_not_speak_says_so_once_and_undoes_everything(scratch):
    with open("/dev/full", "w") as stdout, began(scratch, stdout=stdout) as demo:  # noqa: PTH123 - no path of ours
        try:
            _, err = demo.communicate(timeout=SOON_S)
        finally:
            demo.kill()
    assert demo.returncode == 1
    assert err.splitlines()[-1] == "error: OutputUnwritable: stdout cannot be written: No space left on device"
    assert len(err.splitlines()) == 2
    assert left(scratch) == []
