"""Our stdout for containers' lines: whoever reads it may be slow or gone, and the event loop waits for nobody."""

import os
import pty
import socket
import subprocess
import sys
import tty
from contextlib import contextmanager

import anyio
import pytest

from supervisor.host.line_output import open_line_output
from tests.host.waiting import eventually
from tests.needs import ROOT

pytestmark = pytest.mark.anyio

BOUND_S = 60.0
MUCH = b"a line\n" * 100_000
"""More than any pipe or socket takes at once."""


@contextmanager
def a_pipe():
    yield from closing(*os.pipe())


@contextmanager
def a_terminal():
    reader, writer = pty.openpty()
    tty.setraw(writer)
    yield from closing(reader, writer)


@contextmanager
def a_socket():
    reader, writer = socket.socketpair()
    yield from closing(reader.detach(), writer.detach())


def closing(reader, writer):
    ends = [reader, writer]
    try:
        yield ends
    finally:
        for fd in ends:
            os.close(fd)


EACH = pytest.mark.parametrize("opened", [a_pipe, a_terminal, a_socket])


WRITES = """
import os, sys, anyio
from supervisor.host.line_output import open_line_output
async def main():
    with open_line_output(1) as output:
        async with anyio.create_task_group() as group:
            group.start_soon(output.write, b"a line\\n" * 100_000)
            await anyio.wait_all_tasks_blocked()
            os.write(2, b"the loop goes on")
            group.cancel_scope.cancel()
anyio.run(main, backend=sys.argv[1])
"""


@EACH
def test_a_reader_that_takes_nothing_does_not_stop_the_loop(opened, anyio_backend_name):
    """In a process of its own: a loop that stands still could not end its own test."""
    with opened() as (_reader, writer):
        ended = subprocess.run(
            [sys.executable, "-c", WRITES, anyio_backend_name],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, timeout=BOUND_S, check=False,
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, b"the loop goes on")


@EACH
async def test_a_slow_reader_gets_all_of_it_in_order(opened):
    with opened() as (reader, writer), open_line_output(writer) as output, anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as group:
            group.start_soon(output.write, MUCH)
            await anyio.wait_all_tasks_blocked()
            assert os.get_blocking(writer)  # whoever shares it finds it as it was
            read = b""
            while len(read) < len(MUCH):
                await anyio.wait_readable(reader)
                read += os.read(reader, 1 << 16)
        assert read == MUCH


@EACH
async def test_who_waits_for_a_reader_can_be_cancelled(opened):
    with opened() as (_reader, writer), open_line_output(writer) as output:
        async with anyio.create_task_group() as group:
            group.start_soon(output.write, MUCH)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        assert group.cancel_scope.cancelled_caught


@pytest.mark.parametrize("opened", [a_pipe, a_socket])
async def test_a_reader_that_has_gone_is_an_error(opened):
    with opened() as ends, open_line_output(ends[1]) as output:
        os.close(ends[0])
        ends[0] = os.dup(ends[1])
        with anyio.fail_after(BOUND_S), pytest.raises(BrokenPipeError):
            await output.write(b"a line\n")


@pytest.mark.parametrize("opened", [a_pipe, a_socket])
async def test_a_reader_that_goes_while_it_is_waited_for_is_an_error(opened):
    with opened() as ends, open_line_output(ends[1]) as output, anyio.fail_after(BOUND_S):
        failed = []

        async def write():
            with pytest.raises(OSError) as caught:
                await output.write(MUCH)
            failed.append(caught.value)

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            os.close(ends[0])
            ends[0] = os.dup(ends[1])
            await eventually(lambda: failed)


async def test_a_file_is_appended_to(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"before\n")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        with open_line_output(fd) as output:
            await output.write(b"a line\n")
    finally:
        os.close(fd)
    assert path.read_bytes() == b"before\na line\n"


async def test_a_file_that_stderr_is_written_to_as_well_has_every_line_of_both(tmp_path):
    """As after `>file 2>&1`: one open file without O_APPEND, whose offset both move."""
    path = tmp_path / "out"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.write(fd, b"stderr 1\n")
        with open_line_output(fd) as output:
            await output.write(b"a container's 1\n")
            os.write(fd, b"stderr 2\n")
            await output.write(b"a container's 2\n")
            os.write(fd, b"stderr 3\n")
    finally:
        os.close(fd)
    assert path.read_bytes().splitlines() == [
        b"stderr 1", b"a container's 1", b"stderr 2", b"a container's 2", b"stderr 3",
    ]  # fmt: skip


async def test_the_void_takes_everything():
    fd = os.open(os.devnull, os.O_RDWR)
    try:
        with open_line_output(fd) as output, anyio.fail_after(BOUND_S) as scope:
            await output.write(MUCH)
        assert not scope.cancel_called
    finally:
        os.close(fd)
