"""The samples beside the checkout, when they are there: every one loads, and every bad one is refused for its fault."""

import re
from pathlib import Path

import pytest

from actors.cdi import SpecFormat, encode, inject, join_aliases, load, minimum_version, read_spec, registry_of
from actors.cdi.ports import HostNode
from actors.cdi.registry import SpecFile

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "cdi"
GOOD = sorted(path for path in SAMPLES.glob("*") if path.suffix in {".json", ".yaml"})
BAD = {
    "bad-hook-name.json": ["UnknownHookStage"],
    "bad-permissions.json": ["BadPermissions"],
    "containeredits-as-list.yaml": ["WrongType"],
    "duplicate-device-name.json": ["DuplicateDevice"],
    "duplicate-key.yaml": ["DuplicateKey"],
    "empty-device-edits.json": ["EmptyEdits"],
    "env-without-equals.json": ["BadEnv"],
    "filemode-string.json": ["WrongType"],
    "no-devices.json": ["NoDevices"],
    "null-device-node.yaml": ["WrongType"],
    "removed-enablecmt.json": ["UnknownField"],
    "slash-in-device-name.json": ["BadDeviceName"],
    "unknown-field.json": ["UnknownField"],
    "unknown-version.json": ["UnknownVersion"],
    "version-too-low-for-hostpath.json": ["VersionTooLow"],
}

pytestmark = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not beside this checkout")


def test_every_row_of_the_behaviours_is_a_test():
    rows = re.findall(r"^\| ([A-H]\d+) \|", (SAMPLES / "behaviours.md").read_text(), re.MULTILINE)
    assert len(rows) > 100
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    named = {word for name in re.findall(r"^def test_(\w+)", tests, re.MULTILINE) for word in name.split("_")}
    spans = re.findall(r"^def test_([a-h])(\d+)_to_[a-h](\d+)_", tests, re.MULTILINE)
    named |= {f"{letter}{number}" for letter, low, high in spans for number in range(int(low), int(high) + 1)}
    assert [row for row in rows if row.lower() not in named] == []


def somewhere(_path):
    return HostNode(type="c", major=9, minor=9, mode=0o600)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_every_sample_loads_resolves_injects_and_is_written_back(path):
    spec = load(path.read_bytes(), path.name)
    found = registry_of([SpecFile(path=path.name, spec=spec)])
    for name in found.names():
        document = inject({}, found.resolve([name]), lstat=somewhere)
        assert inject(document, found.resolve([name]), lstat=somewhere) == document
    for spec_format in SpecFormat:
        again = load(encode(spec, spec_format), "x")
        assert (again.devices, again.container_edits) == (spec.devices, spec.container_edits)
        assert again.cdi_version == minimum_version(spec)


@pytest.mark.parametrize("name", sorted(path.name for path in (SAMPLES / "invalid").glob("*")))
def test_every_bad_sample_is_refused_for_its_fault(name):
    reading = read_spec((SAMPLES / "invalid" / name).read_bytes(), name)
    assert [str(problem.reason) for problem in reading.problems] == BAD[name]
    assert all(problem.line for problem in reading.problems)


def names(sample):
    return [device.name for device in load((SAMPLES / sample).read_bytes(), sample).devices]


def test_scalars_that_other_readers_lose():
    assert names("20-yaml-scalar-traps.yaml") == ["0", "1:0", "16", "true"]


def test_an_index_and_its_uuid_are_joined_on_every_kind_of_host():
    for sample in ("01-single-t4-ctk-1.17.yaml", "02-multi-4gpu-ctk-1.20.yaml", "03-mig-ctk-1.20.yaml"):
        spec = load((SAMPLES / sample).read_bytes(), sample)
        groups = join_aliases((device.name, device.container_edits) for device in spec.devices)
        assert all(len(group.names) >= 2 for group in groups if group.names != ("all",)), groups
