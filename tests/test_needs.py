import os
import subprocess

import pytest

from tests import go_programs, needs
from tests.needs import Tool, need, want


@pytest.fixture
def nothing_is_found(monkeypatch):
    monkeypatch.setattr(needs, "find", lambda _tool: None)
    for name in ("CI", "GREENROOM_CI", "GREENROOM_NO_GO", "GREENROOM_NO_OCI", "GREENROOM_NO_CHROMIUM"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nothing_is_found")
@pytest.mark.parametrize("tool", Tool)
def test_a_missing_tool_skips_the_test_and_is_named(tool):
    with pytest.raises(pytest.skip.Exception, match=f"needs {tool.value}: "):
        need(tool)


@pytest.mark.usefixtures("nothing_is_found")
@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("CI", "1"), ("GREENROOM_CI", "1")])
def test_a_missing_tool_fails_the_test_in_ci(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(pytest.fail.Exception, match="needs runsc: "):
        need(Tool.RUNSC)


@pytest.mark.usefixtures("nothing_is_found")
def test_in_ci_go_can_be_gone_without_when_that_is_said_and_nothing_else(monkeypatch):
    monkeypatch.setenv("GREENROOM_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="needs Go toolchain: "):
        need(Tool.GO)
    monkeypatch.setenv("GREENROOM_NO_GO", "1")
    with pytest.raises(pytest.skip.Exception, match="needs Go toolchain: "):
        need(Tool.GO)
    with pytest.raises(pytest.fail.Exception, match="needs C compiler: "):
        need(Tool.COMPILER, Tool.GO)


@pytest.mark.usefixtures("nothing_is_found")
@pytest.mark.parametrize(
    ("tool", "said"),
    [
        (Tool.OCI_RUNTIME, "GREENROOM_NO_OCI"),
        (Tool.TINI, "GREENROOM_NO_OCI"),
        (Tool.CHROMIUM, "GREENROOM_NO_CHROMIUM"),
    ],
)
def test_in_ci_what_may_be_missing_can_be_gone_without_when_that_is_said_and_nothing_else(monkeypatch, tool, said):
    monkeypatch.setenv("GREENROOM_CI", "1")
    with pytest.raises(pytest.fail.Exception, match=f"needs {tool.value}: "):
        need(tool)
    monkeypatch.setenv(said, "1")
    with pytest.raises(pytest.skip.Exception, match=f"needs {tool.value}: "):
        need(tool)
    with pytest.raises(pytest.fail.Exception, match="needs C compiler: "):
        need(Tool.COMPILER, tool)


@pytest.mark.usefixtures("nothing_is_found")
@pytest.mark.parametrize("tool", Tool)
def test_in_ci_only_what_is_not_everywhere_can_be_wanted_and_is_skipped(monkeypatch, tool):
    monkeypatch.setenv("GREENROOM_CI", "1")
    expected = pytest.skip.Exception if tool in needs.NOT_EVERYWHERE else AssertionError
    with pytest.raises(expected):
        want(tool)


def test_whoever_goes_without_go_has_none_to_be_found(monkeypatch):
    monkeypatch.setenv("GREENROOM_NO_GO", "1")
    assert needs._find_go() is None


def test_a_tool_that_is_there_lets_the_test_go_on(monkeypatch):
    looked_for = []

    def find(tool):
        looked_for.append(tool)
        return tool.value

    monkeypatch.setattr(needs, "find", find)
    need(*Tool)
    assert looked_for == list(Tool)


def test_an_old_runsc_is_as_good_as_none(monkeypatch, tmp_path):
    runsc = tmp_path / "runsc"
    monkeypatch.setattr(needs, "beside_interpreter_or_in_path", lambda _name: str(runsc))
    for version, expected in [("release-20230102.0", None), ("0.0~20240729.0", str(runsc)), ("unknown", None)]:
        runsc.write_text(f"#!/bin/sh\necho runsc version {version}\n")
        runsc.chmod(0o755)
        assert needs._find_runsc() == expected


@pytest.mark.parametrize(("code", "is_found"), [(0, True), (1, False)])
def test_a_container_runtime_that_cannot_run_a_container_here_is_as_good_as_none(monkeypatch, tmp_path, code, is_found):
    for name, does in (("busybox", 0), ("runc", code)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {does}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert needs._find_oci_runtime() == (str(tmp_path / "runc") if is_found else None)


def test_a_directory_that_takes_no_process_in_is_no_cgroup(tmp_path):
    assert not needs._takes_a_process_in(tmp_path / "made")
    assert not needs._takes_a_process_in(tmp_path / "absent" / "made")


def test_what_could_not_be_built_is_not_tried_by_each_test_again(monkeypatch):
    begun = []

    def run(argv, **_more):
        begun.append(argv)
        return subprocess.CompletedProcess(argv, 1, "", "no network")

    monkeypatch.setattr(go_programs, "need", lambda *_tools: None)
    monkeypatch.setattr(subprocess, "run", run)
    for _ in range(2):
        with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="no network"):
            go_programs._built("a-program-that-only-this-test-names")
    assert len(begun) == 1
