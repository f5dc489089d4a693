"""Who may ask at the control socket: told by the kernel, before a line is read, and nobody else takes a place."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import click
import pytest
import structlog
import trio
import trio.testing

from actors.ports import Peer
from sim.world import streams as streams_module
from sim.world.disk import SimDisk
from sim.world.net import SimNet, SimSockets
from sim.world.scenery import put_directory
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor import control
from supervisor.cli.run import run
from supervisor.cli.worker_options import settings_in
from supervisor.client import call
from supervisor.control import ControlServer, open_control_socket
from supervisor.host.net import HostNet
from supervisor.peers import REQUESTS_AT_ONCE, REQUESTS_PER_S, Pace, Peers
from tests.needs import Tool, need

pytestmark = pytest.mark.anyio
PATH = Path("/run/greenroom/control.sock")
NOBODY = 65534


async def echo(request):
    return request


@asynccontextmanager
async def a_server(net, path, *uids):
    """One that serves as long as the body lasts."""
    peers = Peers(frozenset(uids))
    async with open_control_socket(net, path, peers) as listener, anyio.create_task_group() as group:
        server = ControlServer(listener=listener, operations={"echo": echo}, peers=peers)
        group.start_soon(server.run)
        yield server
        group.cancel_scope.cancel()


@asynccontextmanager
async def serving(*uids):
    """A server in a simulated machine, and the network of a user there."""
    disk = SimDisk(now_ns=lambda: 0)
    put_directory(disk, PATH.parent)
    sockets = SimSockets(disk)
    async with a_server(SimNet(sockets, peer=Peer(pid=1, uid=0, gid=0)), PATH, *uids) as server:
        with anyio.fail_after(60):
            yield server, lambda uid: SimNet(sockets, peer=Peer(pid=7, uid=uid, gid=uid))


async def reason_of(net):
    with pytest.raises(ProblemError) as caught:
        await call(net, PATH, "echo")
    return caught.value.problem.reason


async def test_root_may_ask_and_nobody_else_does_until_the_worker_is_told_of_them():
    async with serving(1000) as (_server, of):
        for uid in (0, 1000):
            assert await call(of(uid), PATH, "echo") == {"v": 1, "op": "echo"}
        for uid in (1, 999, 1001, NOBODY):
            assert await reason_of(of(uid)) is Reason.PEER_REFUSED


async def test_who_may_not_ask_is_told_so_before_saying_anything_and_closed():
    async with serving() as (server, of):
        stream = (await of(1000).connect_unix(PATH)).stream
        told = json.loads(await stream.receive())
        assert (told["ok"], told["error"]["reason"]) == (False, "PeerRefused")
        assert "1000" in told["error"]["message"]
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        await stream.aclose()
        assert server._clients == {}


async def test_those_who_may_not_ask_take_the_place_of_nobody_who_may(monkeypatch):
    monkeypatch.setattr(control, "CONNECTIONS_MAX", 2)
    async with serving() as (server, of):
        kept = [(await of(0).connect_unix(PATH)).stream for _ in range(2)]
        for _ in range(10):
            assert await reason_of(of(1000)) is Reason.PEER_REFUSED
        for stream in kept:
            await stream.send(b'{"v": 1, "op": "echo"}\n')
            assert json.loads(await stream.receive())["ok"]
            await stream.aclose()
        assert server._number == 2


async def test_of_those_who_may_not_ask_and_do_not_listen_few_are_waited_for(monkeypatch):
    monkeypatch.setattr(control, "REFUSALS_MAX", 2)
    monkeypatch.setattr(control, "CLOSE_TIMEOUT_S", 60.0)
    monkeypatch.setattr(streams_module, "_BUFFER_BYTES", 1)  # no answer fits: each waits until it is taken
    async with serving() as (server, of):
        streams = [(await of(1000 + each).connect_unix(PATH)).stream for each in range(5)]
        await anyio.wait_all_tasks_blocked()
        assert server._refusing == 2
        told = [await all_of(stream) for stream in streams]
        assert [json.loads(each)["error"]["reason"] for each in told[:2]] == ["PeerRefused"] * 2
        assert told[2:] == [b""] * 3
        assert server._refusing == 0
        assert await call(of(0), PATH, "echo")


async def all_of(stream):
    data = b""
    with suppress(anyio.EndOfStream):
        while True:
            data += await stream.receive()
    await stream.aclose()
    return data


async def test_the_log_names_each_of_them_once_and_not_without_end(monkeypatch):
    monkeypatch.setattr(control, "REFUSED_UIDS_TOLD_MAX", 3)
    with structlog.testing.capture_logs() as said:
        async with serving() as (_server, of):
            for _ in range(2):
                for uid in range(10, 20):
                    assert await reason_of(of(uid)) is Reason.PEER_REFUSED
    assert [each["uid"] for each in said if each.get("reason") == "PeerRefused"] == [10, 11, 12]


async def test_the_file_lets_others_in_only_where_somebody_is_to_be(tmp_path):
    for uids, mode in (((), 0o600), ((0,), 0o600), ((1000,), 0o666)):
        async with a_server(HostNet(), tmp_path / "control.sock", *uids):
            assert (tmp_path / "control.sock").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("says", [b'{"v": 1, "op": "echo"}\n', b""], ids=["asks", "is silent"])
async def test_another_user_of_this_machine_is_refused_by_the_kernels_word(says):
    need(Tool.ROOT)
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)  # noqa: PTH101 - of one directory, at once
        path = Path(directory) / "control.sock"
        async with a_server(HostNet(), path, 12345):
            refused = await anyio.to_thread.run_sync(as_user, NOBODY, path, says)
            assert json.loads(refused)["error"]["reason"] == "PeerRefused"
            answered = await anyio.to_thread.run_sync(as_user, 12345, path, b'{"v": 1, "op": "echo"}\n')
            assert json.loads(answered)["ok"]


ASKING = """
import os, socket, sys
from contextlib import suppress
path, uid, says = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
os.setresuid(uid, uid, uid)
with socket.socket(socket.AF_UNIX) as it:
    it.settimeout(60)
    it.connect(path)
    with suppress(BrokenPipeError):
        it.sendall(says)
    sys.stdout.buffer.write(it.makefile("rb").readline())
"""


def as_user(uid, path, says):
    """What a user is told: a process of its own, since one that has changed its user is no longer readable."""
    argv = [sys.executable, "-I", "-S", "-c", ASKING, str(path), str(uid), says.hex()]
    return subprocess.run(argv, stdout=subprocess.PIPE, timeout=90, check=True).stdout


async def test_a_client_whose_request_comes_too_late_reads_why_it_was_refused(tmp_path):
    """The worker has closed before anything was sent to it, and what it said is still there to be read."""
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def refuse():
            accepted, _ = listener.accept()
            with accepted:
                problem = {"step": "admission", "reason": "PeerRefused", "subject": "x", "message": "no", "hint": "",
                           "detail": ""}  # fmt: skip
                accepted.sendall(json.dumps({"ok": False, "error": problem, "errors": [problem]}).encode() + b"\n")

        class Late:
            async def connect_unix(self, where):
                connection = await HostNet().connect_unix(where)
                await anyio.to_thread.run_sync(refuse)
                return connection

        with pytest.raises(ProblemError) as caught:
            await call(Late(), path, "echo")  # type: ignore[arg-type]  # the one method that is called
    assert caught.value.problem.reason is Reason.PEER_REFUSED


def test_a_user_who_asks_without_end_waits_and_others_do_not():
    async def measured():
        pace, began = Pace(), trio.current_time()
        for _ in range(REQUESTS_AT_ONCE):
            await pace.turn(1)
        assert trio.current_time() == began
        for _ in range(3 * int(REQUESTS_PER_S)):
            await pace.turn(1)
        assert trio.current_time() - began == pytest.approx(3.0)
        before = trio.current_time()
        await pace.turn(2)
        assert trio.current_time() == before
        await trio.sleep(REQUESTS_AT_ONCE / REQUESTS_PER_S)
        before = trio.current_time()
        for _ in range(REQUESTS_AT_ONCE - 1):
            await pace.turn(1)
        assert trio.current_time() == before

    trio.run(measured, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_requests_of_all_connections_of_a_user_count_together(monkeypatch):
    turns = []

    async def turn(_self, uid):
        turns.append(uid)

    monkeypatch.setattr(Pace, "turn", turn)
    async with serving(1000) as (_server, of):
        for uid in (0, 1000, 0):
            stream = (await of(uid).connect_unix(PATH)).stream
            for _ in range(2):
                await stream.send(b'{"v": 1, "op": "echo"}\n')
                assert await stream.receive()
            await stream.aclose()
    assert turns == [0, 0, 1000, 1000, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "variable", "file"),
    [
        (["--control-uid", "5", "--control-uid", "1000"], "", b""),
        ([], "5 1000", b""),
        ([], "", b"control-uid = [5, 1000]"),
        ([], "", b'control_uid = ["5", "1000"]'),
        (["--control-uid", "5", "--control-uid", "1000"], "7", b"control-uid = 8"),
    ],
)
def test_the_users_come_from_flags_or_a_variable_or_a_file(monkeypatch, arguments, variable, file):
    monkeypatch.setenv("GREENROOM_CONTROL_UID", variable)
    context = run.make_context("run", list(arguments), default_map=settings_in(file, Path("/x.toml")))
    assert context.params["control_uid"] == (5, 1000)


def test_one_user_in_a_file_is_one_and_not_each_of_his_digits(monkeypatch):
    monkeypatch.delenv("GREENROOM_CONTROL_UID", raising=False)
    context = run.make_context("run", [], default_map=settings_in(b"control-uid = 1000", Path("/x.toml")))
    assert context.params["control_uid"] == (1000,)


@pytest.mark.parametrize(
    "file", [b"control-uid = -1", b"control-uid = [true]", b"control-uid = [[1]]", b'control-uid = "root"']
)
def test_what_is_no_user_is_a_wrong_use(file):
    with pytest.raises(click.UsageError):
        run.make_context("run", [], default_map=settings_in(file, Path("/x.toml")))
