"""Command lines, errors and logs of runsc, held against the model, the fake program and the real binary.

A sentence that the real one breaks is the model's fault.
"""

import json

import pytest

from tests.contract.faces import on

# ------------------------------------------------------------------------------------- command lines, errors and logs


def test_the_version_is_said_without_a_root(face):
    @on(face)
    async def _(bench):
        said = await bench.run("--version")
        assert said.code == 0
        assert said.stdout.startswith("runsc version ")


def test_flags_take_one_dash_or_two_and_an_equals_sign_or_a_blank(face):
    @on(face)
    async def _(bench):
        for words in (["-format", "json"], ["-format=json"], ["--format", "json"], ["--format=json"]):
            assert (await bench.ok("list", *words)).stdout == "null\n"


def test_an_unknown_global_flag_ends_with_2_and_every_other_mistake_with_128(face):
    @on(face)
    async def _(bench):
        bench.flags = (*bench.flags, "--no-such-flag")
        said = await bench.run("list")
        assert (said.code, said.log) == (2, ())
        assert "flag provided but not defined: -no-such-flag" in said.stderr
        bench.flags = bench.flags[:-1]
        for words in (["frob"], ["state"], ["state", "--bad", "c1"], ["state", "c1", "c2"], ["delete"], ["list", "c1"]):
            said = await bench.run(*words)
            assert (said.code, said.log, said.stdout) == (128, (), "")
            assert said.stderr


def test_an_error_stands_on_stderr_and_as_one_object_without_a_newline_in_the_log(face):
    @on(face)
    async def _(bench):
        said = await bench.run("state", "c1")
        assert (said.code, said.stdout) == (128, "")
        assert said.stderr == f"{said.error}\n"
        assert "file does not exist" in said.error
        entry = json.loads(said.raw_log)
        assert set(entry) == {"msg", "level", "time"}
        assert entry["level"] == "error"
        assert not said.raw_log.endswith("\n")
        assert (await bench.run("list")).raw_log == ""


def test_logs_are_appended_to_with_nothing_in_between(face):
    @on(face)
    async def _(bench):
        log = bench.directory / "all.log"
        bench.flags = (*bench.flags, f"--log={log}")
        for _ in range(3):
            await bench.run("state", "c1")
        text = (await bench.files.read(log, limit_bytes=1 << 16)).decode()
        assert text.count('}{"msg"') == 2


@pytest.mark.parametrize(
    ("verb", "doing"),
    [
        ("state", "loading container"),
        ("start", "loading container"),
        ("kill", "loading container"),
        ("wait", "loading container"),
        ("pause", "loading container"),
        ("resume", "loading container"),
        ("ps", "loading sandbox"),
        ("delete", 'loading container "nope"'),
    ],
)
def test_an_id_that_nobody_has_does_not_exist(face, verb, doing):
    @on(face)
    async def _(bench):
        assert await bench.fails(verb, "nope") == f"{doing}: file does not exist"


def test_an_id_with_a_slash_is_refused(face):
    @on(face)
    async def _(bench):
        bundle = await bench.bundle("sb", "sleep", "10")
        assert await bench.fails("create", f"--bundle={bundle}", "a/b") == (
            "creating container: invalid container id: a/b"
        )


def test_a_bundle_that_is_not_there_is_named(face):
    @on(face)
    async def _(bench):
        error = await bench.fails("create", f"--bundle={bench.directory}/nowhere", "sb")
        assert error.startswith(f'reading spec: error opening spec file "{bench.directory}/nowhere/config.json"')
