"""A command's stdout that cannot be written, or is not there: told once, as a reason, whatever is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import ROOT

FULL = "error: OutputUnwritable: stdout cannot be written: No space left on device"
PRINTS = [["machine"], ["--help"], ["demo", "--simulated"], ["status", "--help"], ["--version"]]


def greenroom(*arguments: str, redirected: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command by a shell that gives it another stdout; what its stdout was is lost."""
    line = 'exec "$0" "$@" ' + redirected
    return subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, str(ROOT / "greenroom.py"), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=180,
        check=False,
    )


@pytest.mark.parametrize("arguments", PRINTS, ids=" ".join)
def test_a_full_disk_behind_stdout_is_one_reason(arguments: list[str]):
    ended = greenroom(*arguments, redirected=">/dev/full")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == FULL
    assert len(ended.stderr.splitlines()) == 2


def test_a_failure_that_cannot_be_printed_as_json_is_still_told_on_stderr(tmp_path: Path):
    ended = greenroom("status", "--json", "--run-dir", str(tmp_path), redirected=">/dev/full")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: WorkerUnreachable: ")


@pytest.mark.parametrize("arguments", PRINTS, ids=" ".join)
def test_without_a_stdout_who_has_something_to_print_says_that_it_could_not(arguments: list[str]):
    ended = greenroom(*arguments, redirected=">&-")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "error: OutputUnwritable: stdout cannot be written: Bad file descriptor"
    assert len(ended.stderr.splitlines()) == 2


SAYS = """
import os, sys, greenroom
def run(_arguments):
    with open(sys.argv[1], "w") as file:
        print(file.fileno(), *(os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)), file=file)
greenroom.run = run
greenroom.main()
"""


@pytest.mark.parametrize("closed", [(), (2,), (1,), (0,), (0, 1), (1, 2), (0, 1, 2)], ids=str)
def test_a_stream_that_was_closed_leads_nowhere_and_no_file_of_ours_takes_its_place(closed: tuple[int, ...], tmp_path):
    """The first file that is opened would be it else, and what a library prints would be written into that."""
    line = 'exec "$0" -c "$1" "$2" ' + " ".join(f"{fd}>&-" for fd in closed)
    said = tmp_path / "said"
    ended = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable, SAYS, str(said)],
        cwd=ROOT, stdin=subprocess.PIPE, capture_output=True, timeout=180, check=False,
    )  # fmt: skip
    assert ended.returncode == 0
    number, *streams = said.read_text().split()
    assert int(number) > 2
    assert [fd for fd, target in enumerate(streams) if target == os.devnull] == list(closed)


def test_without_a_stdout_a_failure_is_told_as_ever(tmp_path: Path):
    ended = greenroom("logs", "a1", "--run-dir", str(tmp_path), redirected=">&-")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("error: WorkerUnreachable: ")


@pytest.mark.parametrize("arguments", PRINTS, ids=" ".join)
def test_who_has_nobody_to_read_ends_quietly(arguments: list[str]):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        argv = [sys.executable, str(ROOT / "greenroom.py"), *arguments]
        ended = subprocess.run(argv, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=180, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_what_a_terminal_has_no_letters_for_is_shown_as_escapes(tmp_path: Path):
    (tmp_path / "舞台.json").write_text("")
    written = tmp_path / "out"
    ended = greenroom("validate", str(tmp_path / "舞台.json"), redirected=f">{written}", PYTHONIOENCODING="latin-1")
    assert ended.returncode == 1
    assert r"\u821e\u53f0.json: document: EmptyDocument" in written.read_text()
