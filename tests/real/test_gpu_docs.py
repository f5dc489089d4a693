"""The worked examples of docs/gpu.md, typed as they stand there: what is said to come of each command does."""

import pytest

from tests.needs import ROOT, Tool, need
from tests.real.onlookers import pids_below
from tests.real.transcripts import Shell, Typed, typed_in

pytestmark = [pytest.mark.runsc, pytest.mark.long]

SECTION = "## Three worked examples"


def test_every_command_of_the_examples_prints_what_the_document_says(tmp_path_factory, rootfs):
    need(Tool.MKNOD, Tool.COMPILER)
    section = (ROOT / "docs/gpu.md").read_text().partition(f"\n{SECTION}\n")[2].partition("\n## ")[0]
    typed = typed_in(section)
    assert len(typed) > 30
    directory = tmp_path_factory.mktemp("d")  # the path of a socket has room in it
    shell = Shell(directory)
    try:
        for each in typed:
            assert Typed(each.command, shell.type(each)) == each
    finally:
        shell.close()
    assert pids_below(directory) == []
    assert list((directory / "state/sandboxes").iterdir()) == []


def test_what_is_typed_is_read_with_what_comes_of_it():
    text = "words\n\n    # cat a.yaml\n    a: 1\n      b: 2\n\nmore\n\n    # ls\n    # true\n    x\n"
    assert typed_in(text) == [Typed("cat a.yaml", ["a: 1", "  b: 2"]), Typed("ls", []), Typed("true", ["x"])]


def test_a_command_that_prints_something_else_is_found_out(tmp_path):
    shell = Shell(tmp_path)
    try:
        assert shell.type(Typed("echo a; printf b")) == ["a", "b"]
        assert shell.type(Typed("cat a.yaml", ["a: 1"])) == ["a: 1"]
        assert shell.type(Typed("true")) == []
        assert shell.type(Typed("echo; echo")) == ["", ""]
    finally:
        shell.close()
