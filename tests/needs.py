"""Tools that some tests need: without one a test skips and names it, but in CI it fails, so that nothing goes unseen.

Call `need(Tool.RUNSC, Tool.ROOT)` first thing in a test or a fixture.
"""

import enum
import errno
import functools
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import attrs
import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
OLDEST_RUNSC: Final = 20240729


class Tool(enum.Enum):
    """What a test may need of the machine."""

    RUNSC = "runsc"
    BUSYBOX = "busybox"
    ROOT = "root"
    NAMESPACES = "namespaces"
    UNSHARE = "unshare"
    NEWER_PYTHON = "newer Python"
    GIT = "git"
    APT = "apt"
    PACKAGE_INDEX = "package index"
    GO = "Go toolchain"
    COMPILER = "C compiler"
    MKNOD = "device nodes"
    SETPRIV = "setpriv"
    OCI_RUNTIME = "OCI runtime"
    TINI = "tini"
    IMAGE_BUILDER = "buildah"
    DEBOOTSTRAP = "debootstrap"
    CGROUPS = "writable cgroup v2"
    IPV6 = "IPv6"
    CHROMIUM = "Chromium"


NOT_EVERYWHERE: Final = frozenset({Tool.IMAGE_BUILDER, Tool.DEBOOTSTRAP, Tool.CGROUPS, Tool.IPV6})
"""What a machine of CI need not have, and which a test may therefore `want`."""


@attrs.frozen
class _Probe:
    """How to look for a tool.

    Attributes:
        find: returns where it is (for what has no place: any text), or None when it is missing or of no use.
        remedy: how to get it.
    """

    find: Callable[[], str | None]
    remedy: str


def in_ci() -> bool:
    """Whether this is CI: a missing tool is a failure there, and the same examples are tried each time."""
    return os.environ.get("CI") in {"1", "true"} or os.environ.get("GREENROOM_CI") == "1"


def goes_without_go() -> bool:
    """Whether the person at this machine has said that nothing is to be built with Go, in CI too."""
    return os.environ.get("GREENROOM_NO_GO") == "1"


def goes_without(tool: Tool) -> bool:
    """Whether the person at this machine, or .ci/run there, has said that this tool is gone without, in CI too."""
    if tool is Tool.GO:
        return goes_without_go()
    if tool is Tool.CHROMIUM:
        return os.environ.get("GREENROOM_NO_CHROMIUM") == "1"
    return tool in {Tool.OCI_RUNTIME, Tool.TINI} and os.environ.get("GREENROOM_NO_OCI") == "1"


def beside_interpreter_or_in_path(name: str) -> str | None:
    """Where a program is, looked for as Greenroom itself does."""
    return shutil.which(name, path=str(Path(sys.prefix) / "bin")) or shutil.which(name)


def _succeeds(*argv: str, within_s: float = 90) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, timeout=within_s, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _find_runsc() -> str | None:
    path = beside_interpreter_or_in_path("runsc")
    if path is None:
        return None
    says = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=90, check=False).stdout
    date = re.search(r"20\d{6}", says)
    return path if date and int(date[0]) >= OLDEST_RUNSC else None


def _find_namespaces() -> str | None:
    return "here" if _succeeds("unshare", "--user", "--mount", "--pid", "--net", "--fork", "true") else None


def _find_package_index() -> str | None:
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "1", "--dest"]
    with tempfile.TemporaryDirectory() as folder:
        return "reachable" if _succeeds(*argv, folder, "iniconfig") else None


def _find_newer_python() -> str | None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    argv = [str(ROOT / "scripts" / "find-python"), "--newer", version]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout.strip() or None


def _find_go() -> str | None:
    if goes_without_go():
        return None
    argv = [str(ROOT / "scripts" / "find-go")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False).stdout.strip() or None


def _find_mknod() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.mknod(f"{folder}/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            return None
    return "permitted"


def _find_oci_runtime() -> str | None:
    """Inside a container runc may be there and not be let to run another one."""
    busybox = beside_interpreter_or_in_path("busybox")
    can_run = busybox is not None and _succeeds(str(ROOT / "scripts" / "can-run-oci"), busybox, within_s=90)
    return shutil.which("runc") if can_run else None


def _find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _find_cgroups() -> str | None:
    """Where cgroup v2 is mounted, beside v1 perhaps, from the root that /proc/PID/cgroup counts from, and is ours."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    found = (each[4] for each in mounts if "cgroup2" in each[each.index("-") :] and each[3] == "/")
    return next((mount for mount in found if _takes_a_process_in(Path(mount, f"greenroom-probe-{os.getpid()}"))), None)


def _takes_a_process_in(cgroup: Path) -> bool:
    """Whether it can be made, enters a process under its name, and ends what is in it (Linux 5.14)."""
    try:
        cgroup.mkdir()
    except OSError:
        return False
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        place = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
        return f"0::/{cgroup.name}" in place and (cgroup / "cgroup.kill").exists()
    except OSError:
        return False
    finally:
        process.kill()
        process.communicate()
        _remove(cgroup)


def _remove(cgroup: Path) -> None:
    """Who was in it is reaped, but the kernel may need another moment."""
    for _ in range(500):
        try:
            cgroup.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(0.01)
        else:
            return


def _find_ipv6() -> str | None:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return None
    return "::1"


_PROBES: Final = {
    Tool.RUNSC: _Probe(_find_runsc, f"`make setup AGAIN=1` fetches it; any runsc >= {OLDEST_RUNSC} in PATH will do"),
    Tool.BUSYBOX: _Probe(lambda: beside_interpreter_or_in_path("busybox"), "`make setup AGAIN=1` fetches a static one"),
    Tool.ROOT: _Probe(lambda: "root" if os.geteuid() == 0 else None, "run the tests as root"),
    Tool.NAMESPACES: _Probe(_find_namespaces, "run as root where `unshare --user --mount --pid true` works"),
    Tool.UNSHARE: _Probe(lambda: shutil.which("unshare"), "install util-linux"),
    Tool.NEWER_PYTHON: _Probe(_find_newer_python, "install a CPython newer than the one of .venv, up to 3.13"),
    Tool.GIT: _Probe(lambda: shutil.which("git"), "install git"),
    Tool.APT: _Probe(lambda: shutil.which("apt-get"), "run the tests on Debian"),
    Tool.GO: _Probe(_find_go, "install the Go that `scripts/find-go` asks for, and leave GREENROOM_NO_GO unset"),
    Tool.COMPILER: _Probe(lambda: shutil.which("cc"), "install a C compiler"),
    Tool.MKNOD: _Probe(_find_mknod, "run the tests as root with CAP_MKNOD"),
    Tool.SETPRIV: _Probe(lambda: shutil.which("setpriv"), "install util-linux"),
    Tool.OCI_RUNTIME: _Probe(_find_oci_runtime, "install runc, where `scripts/can-run-oci` ends with 0"),
    Tool.TINI: _Probe(lambda: shutil.which("tini-static"), "install tini"),
    Tool.IMAGE_BUILDER: _Probe(lambda: shutil.which("buildah"), "install buildah"),
    Tool.DEBOOTSTRAP: _Probe(lambda: shutil.which("debootstrap"), "install debootstrap"),
    Tool.CGROUPS: _Probe(_find_cgroups, "run the tests as root where cgroup v2 (Linux 5.14) is mounted for writing"),
    Tool.IPV6: _Probe(_find_ipv6, "run the tests where the loopback interface has ::1"),
    Tool.CHROMIUM: _Probe(_find_chromium, "install Debian's package chromium"),
    Tool.PACKAGE_INDEX: _Probe(_find_package_index, "give this machine's pip an index that it can reach"),
}


@functools.cache
def find(tool: Tool) -> str | None:
    """Where a tool is, or None; looked for once in a test session."""
    return _PROBES[tool].find()


def need(*tools: Tool) -> None:
    """Ends the test unless all the tools are there: skipped, but in CI failed."""
    for tool in tools:
        if find(tool) is None:
            message = f"needs {tool.value}: {_PROBES[tool].remedy}"
            if goes_without(tool):
                pytest.skip(message)
            cannot(message)


def cannot(message: str) -> NoReturn:
    """Ends a test that cannot be run here: skipped, but in CI failed."""
    if in_ci():
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def want(*tools: Tool) -> None:
    """As `need`, for what is looked at only where it can be: without the tools the test is skipped, in CI too."""
    for tool in tools:
        assert tool in NOT_EVERYWHERE, tool
        if find(tool) is None:
            pytest.skip(f"wants {tool.value}: {_PROBES[tool].remedy}")
