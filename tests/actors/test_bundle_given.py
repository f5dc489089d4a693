"""Bundles that somebody else prepared: what stays, what becomes ours, and what is refused where."""

import copy
import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from actors.assignment import Bundle, Container, Resources
from actors.bundle.capabilities import Claims
from actors.bundle.composing import compose_each
from actors.bundle.config import Membership
from actors.bundle.given import CONFIG_BYTES_MAX, given_config, parse_config
from actors.bundle.mounts import Mount
from actors.bundle.seccomp import without_device_nodes
from actors.manifest import as_json, parse_manifest
from actors.steps.bundles import prepare
from actors.strict_json import canonical
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from tests.actors.memory_files import DIRECTORY, MemoryFiles
from tests.actors.test_manifest import MANIFEST
from tests.fakes.sandbox import a_stage

BUNDLE = Path("/given/web")
SUB = Membership(name="web", sandbox_id="c0")
SMALL: dict[str, Any] = {"ociVersion": "1.1.0", "process": {"args": ["sh"]}, "root": {"path": "rootfs"}}
FULL: dict[str, Any] = {
    "ociVersion": "1.0.2-dev",
    "process": {
        "terminal": True,
        "consoleSize": {"height": 1, "width": 2},
        "args": ["/bin/app", "--x"],
        "env": ["A=1", "PATH=/x"],
        "cwd": "/srv",
        "user": {"uid": 7, "gid": 8, "umask": 18},
        "capabilities": {
            "bounding": ["CAP_MKNOD", "CAP_KILL"],
            "effective": ["CAP_MKNOD"],
            "permitted": ["CAP_MKNOD"],
            "inheritable": ["CAP_MKNOD"],
            "ambient": ["CAP_MKNOD"],
        },
        "oomScoreAdj": 5,
    },
    "root": {"path": "/images/web", "readonly": True},
    "hostname": "theirs",
    "mounts": [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/cfg", "type": "bind", "source": "cfg", "options": ["rw", "rbind", "ro"]},
        {"destination": "/abs", "type": "none", "source": "/abs", "options": ["bind"]},
    ],
    "hooks": {"poststart": [{"path": "/usr/bin/hook"}]},
    "annotations": {"theirs": "kept", "io.kubernetes.cri.container-type": "sandbox"},
    "linux": {
        "cgroupsPath": "/theirs",
        "namespaces": [{"type": "network", "path": "/run/netns/x"}, {"type": "pid", "path": "/proc/1/ns/pid"}],
        "resources": {"memory": {"limit": 5, "swap": 6}, "pids": {"limit": 9}},
        "seccomp": {"defaultAction": "SCMP_ACT_ALLOW"},
        "somethingNew": [1, 2.5, None],
    },
}


def parsed(document):
    return parse_config(json.dumps(document).encode(), subject="/given/web/config.json")


def rewritten(document=FULL, limits=Resources(), claims=Claims.NONE, **more):
    return given_config(parsed(document), BUNDLE, membership=SUB, limits=limits, claims=claims, **more)


def test_everything_that_is_not_named_stays_and_the_rest_becomes_ours():
    expected = copy.deepcopy(FULL)
    expected["process"]["terminal"] = False
    del expected["process"]["consoleSize"]
    expected["process"]["capabilities"]["bounding"].sort()
    expected["mounts"][1] |= {"source": "/given/web/cfg", "options": ["rbind", "ro"]}
    expected["annotations"] |= {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "web",
        "io.kubernetes.cri.sandbox-id": "c0",
    }
    del expected["linux"]["cgroupsPath"]
    expected["linux"]["namespaces"] = [{"type": "network", "path": "/run/netns/x"}, {"type": "pid"}]
    assert rewritten() == expected


def test_what_was_read_is_not_changed():
    given = parsed(FULL)
    given_config(given, BUNDLE, membership=SUB, limits=Resources(memory_bytes=1), claims=Claims.DEVICES)
    assert given == FULL


def test_a_small_bundle_gets_only_what_it_needs():
    assert rewritten(SMALL) == {
        "ociVersion": "1.1.0",
        "process": {"args": ["sh"], "terminal": False},
        "root": {"path": "/given/web/rootfs"},
        "mounts": [],
        "annotations": SUB.annotations(),
        "linux": {"namespaces": []},
    }


def test_mknod_goes_from_all_five_sets_where_a_device_is_claimed():
    sets = rewritten(claims=Claims.DEVICES)["process"]["capabilities"]
    assert sets == {"bounding": ["CAP_KILL"], "effective": [], "permitted": [], "inheritable": [], "ambient": []}


def test_a_given_filter_stays_as_it_is_until_a_device_is_claimed_and_then_ours_comes_first():
    given = FULL["linux"]["seccomp"]
    assert rewritten()["linux"]["seccomp"] == given
    assert rewritten(claims=Claims.DEVICES)["linux"]["seccomp"] == without_device_nodes(given)
    assert rewritten(SMALL, claims=Claims.DEVICES)["linux"]["seccomp"] == without_device_nodes(None)


def test_the_assignments_limits_win_and_what_they_do_not_speak_of_stays():
    resources = rewritten(limits=Resources(memory_bytes=7, cpu_milli=1000))["linux"]["resources"]
    assert resources == {
        "memory": {"limit": 7, "swap": 6},
        "cpu": {"quota": 100_000, "period": 100_000},
        "pids": {"limit": 9},
    }


def test_mounts_of_ours_are_added_after_theirs():
    mount = Mount(destination="/data", type="bind", source="/v", options=("rbind",))
    assert rewritten(extra_mounts=(mount,))["mounts"][-1]["destination"] == "/data"


def changed(path, value):
    document = copy.deepcopy(FULL)
    *way, last = path
    holder: Any = document
    for key in way:
        holder = holder[key]
    if value is DIRECTORY:
        del holder[last]
    else:
        holder[last] = value
    return document


ABSENT = DIRECTORY


@pytest.mark.parametrize(
    ("path", "value", "at"),
    [
        (["ociVersion"], ABSENT, "$.ociVersion"),
        (["ociVersion"], "2.0.0", "$.ociVersion"),
        (["ociVersion"], 1, "$.ociVersion"),
        (["process"], ABSENT, "$.process"),
        (["process"], None, "$.process"),
        (["process", "args"], ABSENT, "$.process.args"),
        (["process", "args"], [], "$.process.args"),
        (["process", "args"], [""], "$.process.args"),
        (["process", "args"], ["sh", 1], "$.process.args"),
        (["process", "args"], "sh", "$.process.args"),
        (["process", "env"], {"A": "1"}, "$.process.env"),
        (["process", "capabilities"], ["CAP_KILL"], "$.process.capabilities"),
        (["process", "capabilities", "ambient"], "CAP_KILL", "$.process.capabilities.ambient"),
        (["root"], [], "$.root"),
        (["root", "path"], ABSENT, "$.root.path"),
        (["root", "path"], "", "$.root.path"),
        (["root", "path"], "a\0b", "$.root.path"),
        (["root", "path"], "../../etc", "$.root.path"),
        (["annotations"], {"a": 1}, "$.annotations"),
        (["mounts"], {}, "$.mounts"),
        (["mounts", 1], "x", "$.mounts[1]"),
        (["mounts", 1, "destination"], ABSENT, "$.mounts[1].destination"),
        (["mounts", 1, "source"], 1, "$.mounts[1]"),
        (["mounts", 1, "options"], "ro", "$.mounts[1]"),
        (["linux"], [1], "$.linux"),
        (["linux", "namespaces"], "pid", "$.linux.namespaces"),
        (["linux", "namespaces", 0, "type"], 5, "$.linux.namespaces[0].type"),
        (["linux", "resources"], [], "$.linux.resources"),
        (["linux", "resources", "memory"], 5, "$.linux.resources.memory"),
        (["process", "user"], "root", "$.process.user"),
        (["process", "user", "uid"], "0", "$.process.user.uid"),
        (["process", "user", "uid"], True, "$.process.user.uid"),
        (["process", "user", "gid"], -1, "$.process.user.gid"),
        (["process", "user", "additionalGids"], 5, "$.process.user.additionalGids"),
        (["process", "user", "additionalGids"], [None], "$.process.user.additionalGids"),
        (["linux", "devices"], "x", "$.linux.devices"),
        (["linux", "devices"], [{}], "$.linux.devices[0].path"),
        (["linux", "devices"], [{"path": "/dev/x"}], "$.linux.devices[0]"),
        (["Process"], {}, "$.Process"),
        (["process", "Capabilities"], {"bounding": ["CAP_MKNOD"]}, "$.process.Capabilities"),
        (["process", "capabilities", "Bounding"], ["CAP_MKNOD"], "$.process.capabilities.Bounding"),
        (["mounts", 1, "Source"], "/etc", "$.mounts[1].Source"),
        (["linux", "cgroupspath"], "/theirs", "$.linux.cgroupspath"),
        (["linux", "name\u017fpaces"], [], "$.linux.name\u017fpaces"),
        (["linux", "namespaces", 1, "PATH"], "/proc/1/ns/pid", "$.linux.namespaces[1].PATH"),
        (["linux", "Seccomp"], {"defaultAction": "SCMP_ACT_ALLOW"}, "$.linux.Seccomp"),
        (["linux", "seccomp", "Syscalls"], [], "$.linux.seccomp.Syscalls"),
        (["linux", "seccomp", "syscalls"], [{"Action": "SCMP_ACT_ALLOW"}], "$.linux.seccomp.syscalls[0].Action"),
        (["linux", "seccomp"], "none", "$.linux.seccomp"),
        (["linux", "seccomp", "syscalls"], [{"names": "mknod"}], "$.linux.seccomp.syscalls[0].names"),
    ],
)
def test_a_member_that_cannot_be_used_is_refused_at_its_path(path, value, at):
    with pytest.raises(ProblemError) as refused:
        parsed(changed(path, value))
    [problem] = refused.value.problems
    assert problem.reason is Reason.INVALID_BUNDLE
    assert problem.subject == "/given/web/config.json"
    assert problem.message.startswith(f"{at} ")


def test_annotations_and_unknown_members_are_written_as_they_like():
    document = changed(["annotations"], {"Path": "x", "TYPE": "y"})
    document["linux"]["somethingNew"] = {"Path": 1}
    assert rewritten(document)["annotations"].items() >= {"Path": "x", "TYPE": "y"}.items()


def test_a_device_node_without_a_mode_gets_one():
    devices = [
        {"path": "/dev/x", "type": "c", "major": 1, "minor": 3},
        {"path": "/dev/y", "type": "c", "fileMode": 0o600},
        {"path": "/dev/z", "type": "c", "fileMode": None},
    ]
    modes = [each["fileMode"] for each in rewritten(changed(["linux", "devices"], devices))["linux"]["devices"]]
    assert modes == [0o666, 0o600, 0o666]


def test_all_faults_are_told_at_once():
    with pytest.raises(ProblemError) as refused:
        parsed({"process": {"args": []}, "root": {}})
    assert [problem.message.split()[0] for problem in refused.value.problems] == [
        "$.ociVersion",
        "$.process.args",
        "$.root.path",
    ]


@pytest.mark.parametrize(
    "path",
    [["mounts"], ["annotations"], ["process", "env"], ["process", "capabilities"], ["process", "user"]],
)
def test_null_is_as_good_as_absent_as_go_writes_it(path):
    assert without_nulls(rewritten(changed(path, None))) == without_nulls(rewritten(changed(path, ABSENT)))


def without_nulls(document):
    """As Go reads it."""
    if not isinstance(document, dict):
        return document
    return {key: without_nulls(value) for key, value in document.items() if value is not None}


@pytest.mark.anyio
@pytest.mark.parametrize("member", ["env", "user", "capabilities"])
async def test_a_bundle_with_nulls_is_prepared_and_its_snapshot_could_be_read_back(member):
    document = changed(["process", member], None)
    document["process"]["user"] = document["process"]["user"] and {"uid": None, "gid": None, "additionalGids": None}
    stage, _, _ = a_stage()
    ports: Any = stage.ports
    ports.files.put(BUNDLE / "config.json", json.dumps(document).encode())
    ports.files.put(Path("/images/web/bin/app"), b"")
    plan = await prepare(stage, [Container(name="web", source=Bundle(BUNDLE))], step=Step.CREATE)
    assert plan.containers[0].env == tuple(document["process"]["env"] or ())
    container = attrs.evolve(MANIFEST.containers[0], shape=stage.shapes["web"])
    manifest = attrs.evolve(MANIFEST, containers=(container,))
    assert parse_manifest(canonical(as_json(manifest)), path=Path("/m")) == manifest


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a":1,"a":1}', b"\x80", b"[" * 100_000, b"NaN"])
def test_what_is_no_json_object_is_an_invalid_bundle(data):
    with pytest.raises(ProblemError) as refused:
        parse_config(data, subject="x")
    assert refused.value.problem.reason is Reason.INVALID_BUNDLE


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, Reason.BUNDLE_NOT_FOUND),
        ({"/given/web/config.json": DIRECTORY}, Reason.BUNDLE_NOT_FOUND),
        ({"/given/web/config.json": b" " * (CONFIG_BYTES_MAX + 1)}, Reason.INVALID_BUNDLE),
        ({"/given/web/config.json": b"{}"}, Reason.INVALID_BUNDLE),
        ({"/given/web/config.json": json.dumps(SMALL).encode()}, Reason.ROOTFS_NOT_FOUND),
    ],
)
async def test_a_bundle_that_cannot_be_composed_has_its_reason(content, reason):
    container = Container(name="web", source=Bundle(BUNDLE))
    with pytest.raises(ProblemError) as refused:
        await compose_each(MemoryFiles(content), [container], sandbox_id="c0", hostname="h", claims=Claims.NONE)
    assert refused.value.problem.reason is reason


@pytest.mark.anyio
async def test_a_good_bundle_is_only_read():
    content = {"/given/web/config.json": json.dumps(SMALL).encode(), "/given/web/rootfs": DIRECTORY}
    files = MemoryFiles(content)
    container = Container(name="web", source=Bundle(BUNDLE))
    composed = await compose_each(files, [container], sandbox_id="c0", hostname="h", claims=Claims.NONE)
    assert composed["web"]["root"]["path"] == "/given/web/rootfs"
    assert files.content == {Path(path): data for path, data in content.items()}
