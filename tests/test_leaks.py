"""The look after each test finds what it should, and nothing else."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.leaks import Belongings, find_leaks
from tests.needs import Tool, need

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest_plugins = ["pytester"]

# A second is enough for what is there already.
AT_ONCE_S: Final = 0.0


def leak(directory: Path, make: Callable[[], Callable[[], object]]) -> list[str]:
    before = Belongings.of(directory)
    undo = make()
    try:
        return find_leaks(before, directory, patience_s=AT_ONCE_S)
    finally:
        undo()
        assert find_leaks(before, directory) == []


def live_child() -> Callable[[], object]:
    process = subprocess.Popen(["sleep", "600"])

    def end() -> None:
        process.kill()
        process.wait()

    return end


def zombie() -> Callable[[], object]:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return lambda: os.waitpid(pid, 0)


def a_socket() -> Callable[[], object]:
    return socket.socket().close


def a_second_descriptor_of_the_same_file() -> Callable[[], object]:
    fd = os.dup(0)
    return lambda: os.close(fd)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (live_child, "child process "),
        (zombie, "(true) Z"),
        (a_socket, "descriptor: socket:["),
        (a_second_descriptor_of_the_same_file, "descriptor: /"),
    ],
)
def test_what_is_left_is_named(tmp_path: Path, make, text: str):
    (line,) = leak(tmp_path, make)
    assert text in line or "pipe:" in line


def test_a_temporary_file_is_found_and_others_are_not(tmp_path: Path):
    (tmp_path / "d").mkdir()

    def make() -> Callable[[], object]:
        (tmp_path / "d" / "status.json").touch()
        (tmp_path / "d" / ".hidden.tmp").touch()
        temporary = tmp_path / "d" / ".status.json.0123456789abcdef.tmp"
        temporary.touch()
        return temporary.unlink

    assert leak(tmp_path, make) == [f"temporary file: {tmp_path}/d/.status.json.0123456789abcdef.tmp"]


def test_a_mount_is_found(tmp_path: Path):
    need(Tool.ROOT, Tool.NAMESPACES)
    point = tmp_path / "with blank"
    point.mkdir()

    def make() -> Callable[[], object]:
        subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
        return lambda: subprocess.run(["umount", point], check=True)

    assert leak(tmp_path, make) == [f"mount: {point}"]


@pytest.mark.parametrize("flag", ["--root={}", "-root={}/below"])
def test_a_sandbox_of_the_test_is_found_and_no_other(tmp_path: Path, flag: str):
    def make() -> Callable[[], object]:
        # Its parent ends, so that it is no child of ours.
        script = "setsid sh -c 'kill -STOP $$' sandbox \"$1\" > /dev/null 2>&1 & echo $!"
        argv = ["sh", "-c", script, "sh"]
        pids = [
            int(subprocess.run([*argv, flag.format(root)], capture_output=True, check=True).stdout)
            for root in (tmp_path, f"{tmp_path}-another")
        ]

        def end() -> None:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

        return end

    (line,) = leak(tmp_path, make)
    assert line.startswith("sandbox: ")
    assert line.endswith(flag.format(tmp_path))


def test_what_ends_by_itself_is_no_leak(tmp_path: Path):
    before = Belongings.of(tmp_path)
    process = subprocess.Popen(["sh", "-c", "read line; sleep 0.2; rm $1", "sh", tmp_path / ".x.0123456789abcdef.tmp"])
    (tmp_path / ".x.0123456789abcdef.tmp").touch()
    process.wait()
    assert find_leaks(before, tmp_path) == []


def test_the_fixture_fails_the_test_that_leaks_and_no_other(pytester: pytest.Pytester, request):
    pytester.makeconftest(
        """
        from functools import partial
        from tests import conftest, leaks

        conftest.watch_for_leaks = partial(leaks.watch_for_leaks, patience_s=0.0)
        nothing_is_left_behind = conftest.nothing_is_left_behind
        """
    )
    pytester.makepyfile(
        """
        import os
        import pytest
        from tests.leaks import Belongings

        def test_clean(): pass

        def test_leaks(tmp_path):
            (tmp_path / ".x.0123456789abcdef.tmp").touch()
            os.open("/dev/null", os.O_RDONLY)
            os.posix_spawn("/bin/sh", ["sh", "-c", "kill -STOP $$"], {})

        def test_has_no_children(): assert not Belongings.of(None).children

        def test_closed(): os.close(os.open("/dev/null", os.O_RDONLY))
        """
    )
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(pytester.path / "base")]
    finished = subprocess.run(
        argv,
        cwd=pytester.path,
        env={**os.environ, "PYTHONPATH": str(request.config.rootpath)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "4 passed, 1 error" in finished.stdout, finished.stdout
    assert "left behind:" in finished.stdout
    assert "child process " in finished.stdout
    assert "descriptor: /dev/null" in finished.stdout
    assert "temporary file: " in finished.stdout
