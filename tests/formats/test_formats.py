"""What earlier versions wrote is read by this one; and what this one writes is on record."""

import json
from pathlib import Path

import pytest

from actors import journal, manifest
from actors.codec import structure
from actors.journal import replay
from actors.manifest import parse_manifest
from actors.runsc import record as sandbox_record
from actors.runsc.record import read_record
from actors.steps import assign
from actors.steps.assign import read_assignment
from statemachine.actor import Actor
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor import status
from tests.actors.memory_files import MemoryFiles
from tests.formats.recording import DIRECTORY, MEMORY, record

CURRENT = DIRECTORY / "current"
RELEASES = sorted(path for path in DIRECTORY.iterdir() if (path / MEMORY).exists() and path != CURRENT)
FORMATS = {
    "journal.jsonl": journal.FORMAT,
    "assignment.json": assign.FORMAT,
    "sandbox.json": sandbox_record.FORMAT,
    "manifest.json": manifest.FORMAT,
    "status.json": status.FORMAT,
}
HOW = "`python -m tests.formats.recording current` records it; what a release wrote must still be read"
every = pytest.mark.parametrize("recorded", [*RELEASES, CURRENT], ids=lambda path: path.name)


@every
def test_a_journal_replays_to_the_memory_that_its_writer_had(recorded):
    replayed = replay((recorded / "journal.jsonl").read_bytes(), subject="it")
    assert replayed.actor == structure(json.loads((recorded / MEMORY).read_bytes()), Actor)
    assert replayed.lines > 40


@every
@pytest.mark.anyio
async def test_an_assignment_and_the_record_of_a_sandbox_are_read(recorded):
    directory, names = Path("/s/a1"), ("assignment.json", "sandbox.json")
    files = MemoryFiles({directory / name: (recorded / name).read_bytes() for name in names})
    assignment = await read_assignment(files, directory / "assignment.json")
    assert (assignment.uid, assignment.generation) == ("a1", 3)
    found = await read_record(files, directory)
    assert found is not None
    assert (found.actor, set(found.container_ids)) == ("a1", {"pause", "trainer", "probed"})


@every
def test_a_manifest_is_read(recorded):
    found = parse_manifest((recorded / "manifest.json").read_bytes(), path=Path("/it"))
    assert [each.exited for each in found.containers] == [None, 0, None]
    assert [len(each.gpus) for each in found.containers] == [1, 0, 0]


def test_the_record_of_the_first_release_says_too_little_to_go_on_with():
    data = json.loads((DIRECTORY / "0.1.0" / "sandbox.json").read_bytes())
    assert data["v"] == 1
    assert sandbox_record.SandboxRecord.from_json(data).belongings is None


@pytest.fixture(scope="module")
def written():
    return record()


@pytest.mark.parametrize("name", FORMATS)
def test_no_format_changes_without_a_record_of_it(written, name):
    recorded = (CURRENT / name).read_bytes()
    assert {line["v"] for line in _lines(recorded)} == {FORMATS[name]}, HOW
    assert _members(written[name]) == _members(recorded), HOW


@pytest.mark.parametrize("name", FORMATS)
def test_a_member_that_is_added_or_gone_is_seen(name):
    recorded = (CURRENT / name).read_bytes()
    first, *rest = _lines(recorded)
    added = [{**first, "more": 1}, *rest]
    assert _members(b"\n".join(json.dumps(line).encode() for line in added)) != _members(recorded)


@pytest.mark.anyio
async def test_what_a_newer_version_wrote_is_refused_as_that():
    directory, names = Path("/s/a1"), ("assignment.json", "sandbox.json")
    documents = {name: {**json.loads((CURRENT / name).read_bytes()), "v": FORMATS[name] + 1} for name in names}
    files = MemoryFiles({directory / name: json.dumps(each).encode() for name, each in documents.items()})
    for reading in (read_assignment(files, directory / "assignment.json"), read_record(files, directory)):
        with pytest.raises(ProblemError) as caught:
            await reading
        assert caught.value.problem.reason is Reason.NEWER_FORMAT


def _lines(data):
    """The objects of a file; of one that is written over several lines, the only one."""
    try:
        return [json.loads(data)]
    except ValueError:
        return [json.loads(line) for line in data.splitlines()]


def _members(data):
    """The path and kind of every member; what people have named is `*`."""
    found = set()

    def walk(path, value):
        found.add((path, type(value).__name__))
        if isinstance(value, dict):
            kind = value.get("type", "")
            for key, each in value.items():
                walk(f"{path}.{kind}.{'*' if path.rpartition('.')[2] in OF_NAMES else key}", each)
        elif isinstance(value, list):
            for each in value:
                walk(f"{path}[]", each)

    for line in _lines(data):
        walk("$", line)
    return found


OF_NAMES = {"containers", "gofers", "limits", "requests", "shapes"}
"""Members whose own members are named by people."""
