"""The manifest of a snapshot: it reads back, and a damaged one is a reason."""

import copy
import errno
import json
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.assignment import SnapshotScope
from actors.manifest import (
    Manifest,
    RuntimeFacts,
    Shape,
    ShapeDevice,
    ShapeMember,
    ShapeMount,
    ShapeUser,
    SnapshotContainer,
    SnapshotFile,
    SnapshotGpu,
    as_json,
    is_plain_name,
    parse_manifest,
    read_manifest,
    shape_of,
    write_manifest,
)
from actors.runsc.flags import GlobalFlags
from actors.strict_json import canonical
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.memory_files import DIRECTORY, MemoryFiles
from tests.actors.test_bundle_config import config

HERE = Path("/s/snapshots/s1")
PATH = HERE / "manifest.json"
DIGEST = "0123456789abcdef" * 4

texts = st.text(max_size=8)
counts = st.integers(min_value=0, max_value=1 << 62)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
strings = st.lists(texts, max_size=3).map(tuple)
shapes = st.builds(
    Shape,
    args=strings,
    user=st.builds(ShapeUser, uid=counts, gid=counts, additional_gids=st.lists(counts, max_size=2).map(tuple)),
    mounts=st.lists(st.builds(ShapeMount, destination=texts, type=texts, options=strings), max_size=2).map(tuple),
    devices=st.lists(st.builds(ShapeDevice, path=texts, type=texts), max_size=2).map(tuple),
    capabilities=strings,
    others=st.none() | st.lists(st.builds(ShapeMember, name=texts, value=texts), max_size=2).map(tuple),
)


def in_order(gpus):
    """At the ordinals that their places are."""
    return tuple(attrs.evolve(gpu, ordinal=ordinal) for ordinal, gpu in enumerate(gpus))


gpus = st.builds(SnapshotGpu, ordinal=counts, uuid=texts, model=texts, minor=counts, pci_bus_id=texts)
containers = st.builds(
    SnapshotContainer,
    name=texts,
    image_digest=st.none() | texts,
    shape=shapes,
    gpus=st.lists(gpus, max_size=2).map(in_order),
    exited=st.none() | st.integers(0, 255),
)
files_ = st.lists(
    st.builds(SnapshotFile, name=texts.filter(is_plain_name), size_bytes=counts, blake3=digests),
    max_size=3,
    unique_by=lambda file: file.name,
).map(tuple)


def whole(manifest):
    """The same with every file that its scope demands."""
    others = [file for file in manifest.files if file.name not in manifest.demanded]
    demanded = [SnapshotFile(name=name, size_bytes=5, blake3=DIGEST) for name in manifest.demanded]
    return attrs.evolve(manifest, files=(*others, *demanded))


manifests = st.builds(
    Manifest,
    actor=texts,
    id=texts,
    created_at=texts,
    generation=counts,
    scope=st.sampled_from(SnapshotScope),
    greenroom=texts,
    boot_id=texts,
    arch=texts,
    runsc=st.builds(RuntimeFacts, version=texts, sha256=digests, platform=texts, flags=strings),
    driver=st.none() | texts,
    toolkit=st.none() | texts,
    containers=st.lists(containers, max_size=2).map(tuple),
    volumes=strings,
    files=files_,
    cpu_features=st.none() | strings,
    cuda_checkpoint=st.none() | texts,
).map(whole)

MANIFEST = Manifest(
    actor="u1",
    id="s1",
    created_at="2026-11-29T15:04:05.678Z",
    generation=3,
    scope=SnapshotScope.FULL,
    greenroom="0.1.0",
    boot_id="b",
    arch="x86_64",
    cpu_features=("avx2", "sse4_2"),
    runsc=RuntimeFacts(version="0.0~20240729.0", sha256=DIGEST, platform="systrap", flags=GlobalFlags().as_list()),
    driver=None,
    toolkit=None,
    containers=(
        SnapshotContainer(
            name="web",
            image_digest=None,
            shape=shape_of(config()),
            gpus=(SnapshotGpu(ordinal=0, uuid="GPU-1", model="H200", minor=3, pci_bus_id="0000:01:00.0"),),
            exited=None,
        ),
        SnapshotContainer(name="init", image_digest="sha256:x", shape=shape_of(config()), gpus=(), exited=0),
    ),
    volumes=("work",),
    files=tuple(
        SnapshotFile(name=name, size_bytes=5, blake3=DIGEST)
        for name in ("checkpoint.img", "pages.img", "pages_meta.img", "volumes.tar")
    ),
)


@given(manifests)
def test_a_manifest_reads_back(manifest):
    assert parse_manifest(canonical(as_json(manifest)), path=PATH) == manifest


def test_its_members_are_those_of_format_1():
    document = as_json(MANIFEST)
    assert list(document) == [
        *("v", "actor", "id", "createdAt", "generation", "scope", "greenroom", "bootId", "arch", "cpuFeatures"),
        *("runsc", "driver", "toolkit", "cudaCheckpoint", "containers", "volumes", "files"),
    ]
    assert list(document["runsc"]) == ["version", "sha256", "platform", "flags"]
    assert list(document["containers"][0]) == ["name", "imageDigest", "shape", "gpus", "exited"]
    assert list(document["containers"][0]["shape"]) == ["args", "user", "mounts", "devices", "capabilities", "others"]
    assert list(document["containers"][0]["gpus"][0]) == ["ordinal", "uuid", "model", "minor", "pciBusId"]
    assert document["files"][1] == {"name": "pages.img", "size": 5, "blake3": DIGEST}
    assert (MANIFEST.restorable, MANIFEST.exited) == (("web",), (("init", 0),))
    assert MANIFEST.size_bytes == 20


@pytest.mark.anyio
async def test_it_is_written_and_read_and_members_of_later_versions_are_passed_over():
    files = MemoryFiles({HERE: DIRECTORY})
    await write_manifest(files, HERE, MANIFEST)
    document = json.loads(files.content[PATH])
    document["later"] = document["containers"][0]["later"] = {"x": 1}
    files.content[PATH] = json.dumps(document).encode()
    assert await read_manifest(files, HERE) == MANIFEST


@pytest.mark.anyio
@pytest.mark.parametrize(
    "change",
    [
        {"generation": None},
        {"scope": "Full of it"},
        {"actor": "u" * (64 << 20)},
    ],
)
async def test_a_manifest_that_could_not_be_read_back_is_not_written(change):
    files = MemoryFiles({HERE: DIRECTORY})
    with pytest.raises(ProblemError) as caught:
        await write_manifest(files, HERE, attrs.evolve(MANIFEST, **change))
    assert caught.value.problem.step is Step.SUSPEND
    assert files.content == {HERE: DIRECTORY}


def changed(*way, value):
    document = copy.deepcopy(as_json(MANIFEST))
    holder = document
    for key in way[:-1]:
        holder = holder[key]
    if value is DIRECTORY:
        del holder[way[-1]]
    else:
        holder[way[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1"),
        (b"[]", "object"),
        (canonical(as_json(MANIFEST))[:-20], "damaged"),
        (changed("v", value=DIRECTORY), "format"),
        (changed("v", value=0), "format"),
        (changed("v", value=True), "format"),
        (changed("v", value="1"), "format"),
        (changed("actor", value=DIRECTORY), "actor"),
        (changed("actor", value=7), "actor"),
        (changed("generation", value="3"), "generation"),
        (changed("generation", value=3.0), "generation"),
        (changed("generation", value=True), "generation"),
        (changed("scope", value="Half"), "scope"),
        (changed("driver", value=5), "driver"),
        (changed("volumes", value="work"), "volumes"),
        (changed("cpuFeatures", value="avx2"), "cpu_features"),
        (changed("cpuFeatures", 0, value=2), "cpu_features"),
        (changed("volumes", value={"work": 1}), "volumes"),
        (changed("containers", value=None), "containers"),
        (changed("containers", 0, value="web"), "containers"),
        (changed("containers", 0, "exited", value="0"), "exited"),
        (changed("containers", 0, "shape", "user", "uid", value=None), "uid"),
        (changed("containers", 0, "gpus", 0, "ordinal", value=-1), "ordinal"),
        (changed("containers", 0, "gpus", 0, "ordinal", value=1), "the ordinals 1 are not their places"),
        (changed("runsc", "sha256", value="x"), "$.runsc"),
        (changed("files", 0, "size", value=-1), "$.files[0]"),
        (changed("files", 0, "size", value="5"), "size"),
        (changed("files", 0, "blake3", value=DIGEST.upper()), "hex"),
        (changed("files", 0, "name", value="../pages.img"), "plain"),
        (changed("files", 0, "name", value="a/b"), "plain"),
        (changed("files", 0, "name", value="manifest.json"), "plain"),
        (changed("files", value=[{"name": "a", "size": 1, "blake3": DIGEST}] * 2), "twice"),
    ],
)
def test_a_damaged_manifest_is_a_corrupt_snapshot_and_says_where(data, says):
    with pytest.raises(ProblemError) as failed:
        parse_manifest(data, path=PATH)
    assert failed.value.problem.reason is Reason.SNAPSHOT_CORRUPT
    assert failed.value.problem.subject == str(PATH)
    assert says in failed.value.problem.message


FULL, DATA = SnapshotScope.FULL, SnapshotScope.DATA
IMAGE = ("checkpoint.img", "pages_meta.img", "pages.img")


@pytest.mark.parametrize(
    ("scope", "volumes", "demanded"),
    [
        (FULL, (), IMAGE),
        (FULL, ("work",), (*IMAGE, "volumes.tar")),
        (DATA, ("work",), ("volumes.tar",)),
        (DATA, (), ("volumes.tar",)),
    ],
)
@pytest.mark.parametrize("how", ["not named", "empty"])
def test_a_snapshot_without_a_file_that_its_scope_demands_is_corrupt_whatever_its_other_files(
    scope, volumes, demanded, how
):
    good = whole(attrs.evolve(MANIFEST, scope=scope, volumes=volumes, files=()))
    assert tuple(file.name for file in good.files) == demanded
    assert parse_manifest(canonical(as_json(good)), path=PATH) == good
    for name in demanded:
        files = [file for file in good.files if file.name != name]
        if how == "empty":
            files.append(SnapshotFile(name=name, size_bytes=0, blake3=DIGEST))
        with pytest.raises(ProblemError) as failed:
            parse_manifest(canonical(as_json(attrs.evolve(good, files=tuple(files)))), path=PATH)
        assert failed.value.problem.reason is Reason.SNAPSHOT_CORRUPT
        assert f"no {name}" in failed.value.problem.message


def test_a_manifest_that_says_nothing_of_the_processor_is_read_all_the_same():
    assert parse_manifest(changed("cpuFeatures", value=DIRECTORY), path=PATH).cpu_features is None
    assert parse_manifest(changed("cpuFeatures", value=None), path=PATH).cpu_features is None


@given(st.binary(max_size=200), st.integers(0), st.integers(0, 40))
def test_no_damage_breaks_the_reader(junk, position, length):
    data = canonical(as_json(MANIFEST))
    position %= len(data)
    damaged = data[:position] + junk + data[position + length :]
    # What is still a manifest may be read; what is not ends in one of these two, and in nothing else.
    reasons = {Reason.SNAPSHOT_CORRUPT, Reason.NEWER_FORMAT}
    try:
        parse_manifest(damaged, path=PATH)
    except ProblemError as error:
        reasons.discard(error.problem.reason)
        assert len(reasons) == 1


def test_a_newer_format_is_told_apart_from_damage():
    with pytest.raises(ProblemError) as failed:
        parse_manifest(b'{"v": 2}', path=PATH)
    assert failed.value.problem.reason is Reason.NEWER_FORMAT


@pytest.mark.anyio
@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES])
async def test_a_manifest_that_cannot_be_read_is_no_snapshot(number):
    files = MemoryFiles({HERE: DIRECTORY})
    files.fail("read", PATH, number)
    with pytest.raises(ProblemError) as failed:
        await read_manifest(files, HERE)
    assert failed.value.problem.reason is Reason.SNAPSHOT_MISSING


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        *[("pages.img", True), ("é", True), ("", False), (".", False), ("..", False), ("a/b", False), ("a\0b", False)],
        *[("x" * 255, True), ("é" * 128, False)],
    ],
)
def test_a_plain_name_leads_nowhere_else(name, plain):
    assert is_plain_name(name) is plain


def test_the_shape_of_a_container_comes_from_its_document():
    shape = shape_of(config())
    assert shape.args == ("serve", "--on")
    assert shape.user == ShapeUser(uid=1000, gid=1001, additional_gids=(4, 5))
    assert shape.mounts[0] == ShapeMount(destination="/proc", type="proc", options=("nodev", "noexec", "nosuid"))
    assert "CAP_CHOWN" in shape.capabilities
    others = {each.name: each.value for each in shape.others or ()}
    assert list(others) == ["cwd", "namespaces", "rlimits"]
    assert (others["cwd"], others["namespaces"]) == ('"/app"', '["ipc", "mount", "network", "pid", "uts"]')
    with_device = config()
    with_device["linux"]["devices"] = [{"path": "/dev/x", "type": "c", "major": 1, "minor": 3}]
    assert shape_of(with_device) == attrs.evolve(shape, devices=(ShapeDevice(path="/dev/x", type="c"),))
    assert shape_of({"process": {"args": ["sh"]}}).user == ShapeUser(uid=0, gid=0)
