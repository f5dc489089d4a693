"""Admission with the look at the file system: what is missing is reported together with everything else."""

import errno
import json
import os
from pathlib import Path

import pytest

from actors.admission import admit, decode
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from tests.actors.assignments import BASE, MINIMAL, document, memory, with_container, with_spec
from tests.actors.memory_files import DIRECTORY

pytestmark = pytest.mark.anyio

ROOTFS, BUNDLE = BASE / "rootfs", BASE / "bundle"
WITH_BUNDLE = with_spec(containers=[{"name": "main", "bundle": "bundle"}])


async def refused(content, files):
    with pytest.raises(ProblemError) as caught:
        await admit(json.dumps(content, indent=1).encode(), base=BASE, files=files)
    return [(str(problem.reason), problem.subject) for problem in caught.value.problems], caught.value.problem.message


async def test_an_assignment_whose_paths_exist_is_admitted():
    files = memory({ROOTFS: DIRECTORY, BUNDLE: DIRECTORY, BUNDLE / "config.json": b"{}"})
    for content in (MINIMAL, WITH_BUNDLE):
        data = json.dumps(content).encode()
        assert await admit(data, base=BASE, files=files) == decode(data, base=BASE)


@pytest.mark.parametrize(
    ("files", "words"), [({}, "does not exist"), ({ROOTFS: b""}, "is not a directory")], ids=["nothing", "a file"]
)
async def test_a_rootfs_is_a_directory(files, words):
    found, message = await refused(MINIMAL, memory(files))
    assert found == [("RootfsNotFound", "spec.containers[0].rootfs")]
    assert message == f'container main: "/assignments/rootfs" {words} (line 13)'


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, '"/assignments/bundle" does not exist'),
        ({BUNDLE: b""}, '"/assignments/bundle" is not a directory'),
        ({BUNDLE: DIRECTORY}, '"/assignments/bundle/config.json" does not exist'),
        ({BUNDLE: DIRECTORY, BUNDLE / "config.json": DIRECTORY}, '"/assignments/bundle/config.json" is not a file'),
    ],
    ids=["nothing", "a file", "no config.json", "config.json is a directory"],
)
async def test_a_bundle_is_a_directory_with_a_configuration(files, words):
    found, message = await refused(WITH_BUNDLE, memory(files))
    assert found == [("BundleNotFound", "spec.containers[0].bundle")]
    assert words in message


@pytest.mark.parametrize("number", [errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EIO])
async def test_a_path_that_cannot_be_looked_at_is_not_found(number):
    files = memory({ROOTFS: DIRECTORY})
    files.fail("lstat", ROOTFS, number)
    found, message = await refused(MINIMAL, files)
    assert found == [("RootfsNotFound", "spec.containers[0].rootfs")]
    assert "cannot be looked at" in message


async def test_missing_paths_stand_among_the_other_problems_in_document_order():
    containers = [
        {"name": "a", "rootfs": "no", "command": ["x"], "workingDir": "y"},
        {"name": "pause", "bundle": "bundle"},
        {"name": "b", "bundle": "/no"},
    ]
    content = document(metadata__uid="/", spec__containers=containers)
    files = memory({BUNDLE: DIRECTORY, BUNDLE / "config.json": b"{}"})
    found, _ = await refused(content, files)
    assert found == [
        ("InvalidUid", "metadata.uid"),
        ("RootfsNotFound", "spec.containers[0].rootfs"),
        ("InvalidValue", "spec.containers[0].workingDir"),
        ("InvalidContainerName", "spec.containers[1].name"),
        ("BundleNotFound", "spec.containers[2].bundle"),
    ]


async def test_a_path_that_is_no_path_is_not_looked_for():
    files = memory()
    found, _ = await refused(with_container(rootfs="a\0b"), files)
    assert found == [("InvalidValue", "spec.containers[0].rootfs")]


async def test_a_path_below_a_directory_whose_name_is_no_utf8_could_not_be_written_down():
    base = Path(os.fsdecode(b"/\xff"))
    with pytest.raises(ProblemError) as caught:
        await admit(json.dumps(MINIMAL).encode(), base=base, files=memory({base / "rootfs": DIRECTORY}))
    assert [(problem.reason, problem.subject) for problem in caught.value.problems] == [
        (Reason.INVALID_VALUE, "spec.containers[0].rootfs")
    ]


async def test_nothing_is_looked_for_when_the_document_cannot_be_read():
    with pytest.raises(ProblemError) as caught:
        await admit(b"\xff", base=BASE, files=memory())
    assert caught.value.problem.reason == "NotUtf8"
