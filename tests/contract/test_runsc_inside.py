"""Ids, lists, and what runs inside a container, held against the model, the fake program and the real binary."""

import pytest

from tests.contract.benches import COUNT
from tests.contract.faces import on

# ---------------------------------------------------------------------------------------------------------- ids, lists


def test_an_id_is_found_by_a_prefix_and_several_are_ambiguous(face):
    @on(face)
    async def _(bench):
        await bench.up(app1="exec sleep 1000")
        assert (await bench.ok("state", "app")).document()["id"] == "app1"
        await bench.start("app2", "sleep", "1000")
        for verb in ("state", "kill"):
            assert await bench.fails(verb, "app") == (
                'loading container: id "app" is ambiguous and could refer to multiple containers: '
                '"sb/app1", {"sb" "app2"}'
            )
        await bench.ok("delete", "-force", "app2")
        await bench.ok("delete", "-force", "app")
        assert await bench.names() == {"sb_sandbox:sb.state", "sb_sandbox:sb.lock", "runsc-sb.sock"}


def test_an_exact_id_is_ambiguous_too_when_a_longer_one_begins_with_it(face):
    @on(face)
    async def _(bench):
        await bench.up(c1="exec sleep 1000", c10="exec sleep 1000", sbx="exec sleep 1000")
        assert await bench.fails("state", "c1") == (
            'loading container: id "c1" is ambiguous and could refer to multiple containers: "sb/c10", {"sb" "c1"}'
        )
        assert (await bench.ok("state", "c10")).document()["id"] == "c10"
        assert await bench.fails("state", "sb") == (
            'loading container: id "sb" is ambiguous and could refer to multiple containers: "sb/sb", {"sb" "sbx"}'
        )


def test_lists_tell_of_all_containers_and_of_none_they_say_null(face):
    @on(face)
    async def _(bench):
        assert (await bench.ok("list", "--format=json")).stdout == "null\n"
        assert (await bench.ok("list", "-quiet")).stdout == ""
        await bench.up(c1="exec sleep 1000")
        found = (await bench.ok("list", "--format=json")).document()
        assert [(each["id"], each["status"], each["pid"]) for each in found] == [
            ("c1", "running", await bench.pid()),
            ("sb", "running", await bench.pid()),
        ]
        assert (await bench.ok("list", "-quiet")).stdout == "c1\nsb\n"
        assert (await bench.ok("list", "-quiet", "-sandbox")).stdout == "sb\n"
        assert (await bench.ok("list")).stdout.splitlines()[0].split() == [
            "ID", "PID", "STATUS", "BUNDLE", "CREATED", "OWNER",
        ]  # fmt: skip


def test_a_state_file_that_is_no_json_is_passed_over_by_list_and_fails_everything_else(face):
    @on(face)
    async def _(bench):
        await bench.up(c1="exec sleep 1000")
        await bench.rewrite(bench.directory / "root" / "c1_sandbox:sb.state", lambda _: b"{")
        found = (await bench.ok("list", "--format=json")).document()
        assert [each["id"] for each in found] == ["sb"]
        for verb in (["state"], ["delete", "-force"]):
            assert (await bench.run(*verb, "c1")).code == 128


# ---------------------------------------------------------------------------------------------------- what lives inside


def test_what_runs_is_listed_by_pids_inside_and_sampled(face):
    @on(face)
    async def _(bench):
        await bench.up(c1="exec sleep 1000")
        table = (await bench.ok("ps", "--format=table", "c1")).stdout.splitlines()
        assert table[0].split()[:3] == ["UID", "PID", "PPID"]
        assert [line.split()[1:3] for line in table[1:]] == [["2", "0"]]
        assert (await bench.ok("ps", "-format", "json", "c1")).document() == [2]
        sample = (await bench.ok("events", "-stats", "c1")).document()
        assert (sample["type"], sample["id"]) == ("stats", "c1")
        assert sample["data"]["pids"] == {"current": 1}
        assert sample["data"]["memory"]["usage"]["usage"] > 0


def test_a_command_runs_inside_with_its_own_output_and_code(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        said = await bench.run("exec", "c1", "sh", "-c", "echo out; echo err >&2; exit 9")
        assert (said.code, said.stdout, said.stderr, said.log) == (9, "out\n", "err\n", ())
        assert (await bench.run("exec", "c1", "sh", "-c", "kill -9 $$")).code == 137
        said = await bench.run("exec", "c1", "sh", "-c", "exit 128")
        assert (said.code, said.log) == (128, ())


def test_a_command_that_does_not_exist_is_named_by_exec(face):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        failing = "executing processes for container: executing command"
        assert await bench.fails("exec", "c1", "/nope") == (
            f'{failing} "/nope" in sandbox: failed to load /nope: no such file or directory'
        )
        assert await bench.fails("exec", "c1", "nope") == (
            f'{failing} "nope" in sandbox: error finding executable "nope" in PATH [/bin]: no such file or directory'
        )
        assert "both a container-id and command are required" in await bench.fails("exec", "c1")


@pytest.mark.parametrize("command", ["/nope", "nope"])
def test_a_command_that_could_not_start_leaks_the_gofer_so_that_it_tells_no_end_any_more(face, command):
    @on(face)
    async def _(bench):
        await bench.up(c1=COUNT)
        gofer = await bench.gofer("c1")
        await bench.fails("exec", "c1", command)
        await bench.ok("kill", "c1", "KILL")
        await bench.ended("c1")
        assert await bench.is_running(gofer)
        assert (await bench.ok("wait", "c1")).document() == {"id": "c1", "exitStatus": 137}
        await bench.ok("delete", "c1")
        assert not await bench.is_running(gofer)


def test_a_command_can_be_killed_by_its_pid_inside_and_lives_on_when_its_exec_is_killed(face):
    @on(face)
    async def _(bench):
        await bench.up(c1="exec sleep 1000")
        pid_file = bench.directory / "inside"
        await bench.blocks("exec", f"--internal-pid-file={pid_file}", "c1", "sleep", "1000")
        pid = (await bench.files.read(pid_file, limit_bytes=32)).decode()
        inside = (await bench.ok("ps", "-format", "json", "c1")).document()
        assert sorted(inside) == [2, int(pid)]
        await bench.ok("kill", f"--pid={pid}", "c1", "KILL")

        async def is_gone():
            return (await bench.ok("ps", "-format", "json", "c1")).document() == [2]

        await bench.until(is_gone)
        assert "no such process" in await bench.fails("kill", f"--pid={pid}", "c1", "KILL")
