"""The verdict on a snapshot: everything that differs here, by name, with what was and what is (case 033)."""

from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from actors.assignment import SnapshotScope
from actors.compatibility import ContainerHere, Difference, Force, Here, Injected, differences, refusal
from actors.manifest import (
    Manifest,
    RuntimeFacts,
    Shape,
    ShapeDevice,
    ShapeMember,
    ShapeMount,
    ShapeUser,
    SnapshotContainer,
    SnapshotGpu,
)
from actors.runsc.flags import GlobalFlags
from actors.runsc.version import RuntimeVersion
from statemachine.reasons import Reason
from tests.actors.test_manifest import whole

OLD = RuntimeVersion(text="0.0~20240729.0", date=20240729)
HEAD = RuntimeVersion(text="release-20260622.0", date=20260622)
X, Y = "a" * 64, "b" * 64
NEVER, BUNDLE, MOUNT = Force.NEVER, Reason.BUNDLE_CHANGED, Reason.MOUNT_MISSING

SHAPE: Any = Shape(
    args=("serve", "--port", "80"),
    user=ShapeUser(uid=1000, gid=1001, additional_gids=(4, 5)),
    mounts=(
        ShapeMount(destination="/proc", type="proc", options=("nodev", "nosuid")),
        ShapeMount(destination="/data", type="bind", options=("rbind", "ro")),
    ),
    devices=(ShapeDevice(path="/dev/fuse", type="c"), ShapeDevice(path="/dev/nvidia3", type="c")),
    capabilities=("CAP_CHOWN", "CAP_KILL"),
    others=(ShapeMember(name="cwd", value='"/"'), ShapeMember(name="seccomp", value="of digest 1")),
)


def snapshot_gpu(ordinal, minor):
    return SnapshotGpu(
        ordinal=ordinal, uuid=f"GPU-{minor}", model="H100", minor=minor, pci_bus_id=f"0000:0{minor}:00.0"
    )


MANIFEST = whole(
    Manifest(
        actor="u1", id="s0000000000000001", created_at="2026-11-29T15:04:05.678Z", generation=3,
        scope=SnapshotScope.FULL, greenroom="0.1.0", boot_id="b", arch="x86_64",
        cpu_features=("avx2", "avx512f", "constant_tsc", "pti"),
        runsc=RuntimeFacts(version=HEAD.text, sha256=X, platform="systrap", flags=GlobalFlags().as_list()),
        driver="580.2", toolkit="1.20.0", volumes=("work",), files=(),
        containers=(
            SnapshotContainer(
                name="main", image_digest="sha256:d1", shape=SHAPE, exited=None,
                gpus=(snapshot_gpu(0, 0), snapshot_gpu(1, 1)),
            ),
            SnapshotContainer(name="side", image_digest=None, shape=SHAPE, exited=None, gpus=(snapshot_gpu(0, 2),)),
            SnapshotContainer(name="init", image_digest="sha256:d1", shape=SHAPE, exited=0, gpus=()),
        ),
    )
)  # fmt: skip


def gpu_here(gpu) -> Any:
    """What of a GPU is compared, which here may be anything at all."""
    return SimpleNamespace(minor=gpu.minor, model=gpu.model, uuid=gpu.uuid)


def at_home(manifest):
    """Where it was taken: by the same runsc, of the same actor, on the same GPUs."""
    return Here(
        runtime=RuntimeVersion(text=manifest.runsc.version, date=20260622),
        runsc_sha256=manifest.runsc.sha256,
        flags=GlobalFlags(),
        arch=manifest.arch,
        cpu_features=manifest.cpu_features,
        driver=manifest.driver,
        containers=[
            ContainerHere(
                name=each.name,
                image_digest=each.image_digest,
                shape=None if each.exited is not None else each.shape,
                gpus=[gpu_here(gpu) for gpu in each.gpus],
            )
            for each in manifest.containers
        ],
        volumes=manifest.volumes,
    )


HERE = at_home(MANIFEST)


def container(name="main", **changes):
    """The place, with one container changed."""
    return [attrs.evolve(each, **changes) if each.name == name else each for each in HERE.containers]


def shape(**changes):
    return {"containers": container(shape=attrs.evolve(SHAPE, **changes))}


def user(**changes):
    return shape(user=attrs.evolve(SHAPE.user, **changes))


def gpus(*minors, model="H100"):
    found = [gpu_here(attrs.evolve(snapshot_gpu(0, minor), model=model)) for minor in minors]
    return {"containers": container(gpus=found)}


def mounts(*added):
    return shape(mounts=(*SHAPE.mounts, *added))


def bind(path, *options, kind="bind"):
    return ShapeMount(destination=path, type=kind, options=options)


ONE_BY_ONE: dict[str, Any] = {
    "nothing": ({}, []),
    "another machine": ({"arch": "aarch64"}, [("arch", "x86_64", "aarch64", NEVER)]),
    "a processor that can less": (
        {"cpu_features": ("avx2",)},
        [("CPU feature avx512f", "present", "absent")],
    ),
    "a processor that can more": ({"cpu_features": ("amx", "avx2", "avx512f")}, []),
    "a processor of which nothing is known": ({"cpu_features": None}, []),
    "another platform": ({"flags": GlobalFlags(platform="ptrace")}, [("platform", "systrap", "ptrace")]),
    "another runsc": (
        {"runtime": RuntimeVersion(text="release-20260810.0", date=20260810)},
        [("runsc", "release-20260622.0", "release-20260810.0")],
    ),
    "an older runsc": ({"runtime": OLD}, [("runsc", "release-20260622.0", "0.0~20240729.0")]),
    "another build of the same version": (
        {"runsc_sha256": Y},
        [("runsc", "release-20260622.0 (aaaaaaaaaaaa)", "release-20260622.0 (bbbbbbbbbbbb)")],
    ),
    "another network": ({"flags": GlobalFlags(network="sandbox")}, [("flag --network", "none", "sandbox")]),
    "a flag more": ({"flags": GlobalFlags(extra=("--nvproxy",))}, [("flag --nvproxy", "absent", "set")]),
    "an annotation more": (
        {"flags": GlobalFlags(annotations=("dev.gvisor.x=true",))},
        [("annotation dev.gvisor.x", "absent", "true")],
    ),
    "a container less": (
        {"containers": HERE.containers[:1]},
        [("containers", "main, side, init", "main", NEVER)],
    ),
    "a container more": (
        {"containers": [*HERE.containers, ContainerHere(name="more")]},
        [("containers", "main, side, init", "main, side, init, more", NEVER)],
    ),
    "a container of another name": (
        {"containers": [each if each.name != "side" else attrs.evolve(each, name="aside") for each in HERE.containers]},
        [("containers", "main, side, init", "main, aside, init", NEVER)],
    ),
    "one GPU less": (gpus(0), [("main: GPUs", "2", "1", NEVER)]),
    "one GPU more": (gpus(0, 1, 5), [("main: GPUs", "2", "3", NEVER)]),
    "GPUs of another model": (
        gpus(0, 1, model="A100"),
        [("main: GPU 0", "H100", "A100"), ("main: GPU 1", "H100", "A100")],
    ),
    "other GPUs of the model, in the same order": (gpus(0, 1), []),
    "GPUs in another order": (
        gpus(1, 0),
        [("device map", "main/0, main/1, side/0", "main/1, main/0, side/0")],
    ),
    "another driver": ({"driver": "570.1"}, [("driver", "580.2", "570.1")]),
    "no driver at all": ({"driver": None}, []),
    "a volume less": ({"volumes": ()}, [("volume work", "saved", "absent")]),
    "a volume more": ({"volumes": ("more", "work")}, []),
    "another image": (
        {"containers": container(image_digest="sha256:d2")},
        [("main: imageDigest", "sha256:d1", "sha256:d2", BUNDLE)],
    ),
    "an image of no digest": ({"containers": container(image_digest=None)}, []),
    "another image of what has exited": (
        {"containers": container("init", image_digest="sha256:d2")},
        [("init: imageDigest", "sha256:d1", "sha256:d2", BUNDLE)],
    ),
    "another command": (
        shape(args=("crash", "--port", "80")),
        [("main: argument 0", "'serve'", "'crash'", BUNDLE)],
    ),
    "another argument": (shape(args=("serve", "--port", "81")), [("main: argument 2", "'80'", "'81'", BUNDLE)]),
    "an argument less": (shape(args=("serve", "--port")), [("main: argument 2", "'80'", "absent", BUNDLE)]),
    "an argument more": (
        shape(args=("serve", "--port", "80", "")),
        [("main: argument 3", "absent", "''", BUNDLE)],
    ),
    "another user": (user(uid=0), [("main: user uid", "1000", "0", BUNDLE)]),
    "another group": (user(gid=0), [("main: user gid", "1001", "0", BUNDLE)]),
    "other groups": (user(additional_gids=(5, 6)), [("main: user additionalGids", "4, 5", "5, 6", BUNDLE)]),
    "groups in another order": (user(additional_gids=(5, 4)), []),
    "a mount more": (mounts(bind("/new", "ro")), [("main: mount /new", "absent", "bind ro", BUNDLE)]),
    "a mount less": (
        shape(mounts=SHAPE.mounts[:1]),
        [("main: mount /data", "bind rbind,ro", "absent", BUNDLE)],
    ),
    "a mount with other options": (
        shape(mounts=(SHAPE.mounts[0], bind("/data", "rbind", "rw"))),
        [("main: mount /data", "bind rbind,ro", "bind rbind,rw", BUNDLE)],
    ),
    "a mount of another type": (
        shape(mounts=(SHAPE.mounts[0], bind("/data", "rbind", "ro", kind="tmpfs"))),
        [("main: mount /data", "bind rbind,ro", "tmpfs rbind,ro", BUNDLE)],
    ),
    "a mount over another": (
        mounts(bind("/data", kind="tmpfs")),
        [("main: mount /data", "bind rbind,ro", "bind rbind,ro; tmpfs", BUNDLE)],
    ),
    "very many mounts over another": (
        {"containers": container(shape=attrs.evolve(SHAPE, mounts=(*SHAPE.mounts, *[bind("/x")] * 100_000)))},
        [("main: mount /x", "absent", "; ".join(["bind"] * 100_000), BUNDLE)],
    ),
    "mounts and options in another order": (
        shape(mounts=(bind("/data", "ro", "rbind"), SHAPE.mounts[0])),
        [],
    ),
    "a device more": (
        shape(devices=(*SHAPE.devices, ShapeDevice(path="/dev/kvm", type="c"))),
        [("main: device /dev/kvm", "absent", "c", BUNDLE)],
    ),
    "a device less": (shape(devices=()), [("main: device /dev/fuse", "c", "absent", BUNDLE)]),
    "a device of another type": (
        shape(devices=(ShapeDevice(path="/dev/fuse", type="b"),)),
        [("main: device /dev/fuse", "c", "b", BUNDLE)],
    ),
    "the node of another GPU": (
        shape(devices=(SHAPE.devices[0], ShapeDevice(path="/dev/nvidia7", type="c"))),
        [],
    ),
    "a capability more": (
        shape(capabilities=("CAP_CHOWN", "CAP_KILL", "CAP_MKNOD")),
        [("main: capability CAP_MKNOD", "absent", "granted", BUNDLE)],
    ),
    "a capability less": (
        shape(capabilities=("CAP_KILL",)),
        [("main: capability CAP_CHOWN", "granted", "absent", BUNDLE)],
    ),
    "another directory to begin in": (
        shape(others=(ShapeMember(name="cwd", value='"/x"'), SHAPE.others[1])),
        [("main: cwd", '"/"', '"/x"', BUNDLE)],
    ),
    "another seccomp profile": (
        shape(others=(SHAPE.others[0], ShapeMember(name="seccomp", value="of digest 2"))),
        [("main: seccomp", "of digest 1", "of digest 2", BUNDLE)],
    ),
    "a member more": (
        shape(others=(*SHAPE.others, ShapeMember(name="sysctl", value="{}"))),
        [("main: sysctl", "absent", "{}", BUNDLE)],
    ),
    "a member less": (shape(others=SHAPE.others[:1]), [("main: seccomp", "of digest 1", "absent", BUNDLE)]),
    "members of which nothing was noted": (shape(others=None), []),
    "another bundle of what has exited": ({"containers": container("init", shape=None)}, []),
}


def expected(subject, was, now, *more):
    """Without a word on it, it is SnapshotIncompatible, and can be forced."""
    reason = next((each for each in more if isinstance(each, Reason)), Reason.SNAPSHOT_INCOMPATIBLE)
    force = next((each for each in more if isinstance(each, Force)), Force.POSSIBLE)
    return Difference(subject=subject, was=was, now=now, reason=reason, force=force)


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_each_thing_that_differs_is_named_with_what_was_and_what_is_and_nothing_else(name):
    change, found = ONE_BY_ONE[name]
    assert differences(MANIFEST, attrs.evolve(HERE, **change)) == tuple(expected(*each) for each in found)


def test_everything_is_told_at_once_and_what_cannot_be_helped_comes_first():
    apart = [name for name in ONE_BY_ONE if name not in {"nothing", "GPUs in another order"}]
    changes = [ONE_BY_ONE[name][0] for name in ("another machine", "another driver", "a volume less")]
    merged = {key: value for change in changes for key, value in change.items()} | ONE_BY_ONE["another argument"][0]
    found = differences(MANIFEST, attrs.evolve(HERE, **merged))
    assert [each.subject for each in found] == ["arch", "driver", "volume work", "main: argument 2"]
    problem = refusal(found)
    assert (problem.reason, problem.subject) == (Reason.SNAPSHOT_INCOMPATIBLE, "arch")
    assert problem.detail.splitlines() == [str(each) for each in found]
    assert "cannot be forced: arch" in problem.hint
    assert len(apart) > 40


def test_a_refusal_of_one_thing_says_it_once_and_how_it_is_forced():
    (found,) = differences(MANIFEST, attrs.evolve(HERE, **ONE_BY_ONE["another argument"][0]))
    problem = refusal([found])
    assert problem.reason is Reason.BUNDLE_CHANGED
    assert problem.message == "main: argument 2 was '80' in the snapshot, here it is '81'"
    assert problem.detail == ""
    assert "--force" in problem.hint


def test_a_snapshot_in_which_nobody_lives_is_not_restored_and_cannot_be_forced():
    ended = attrs.evolve(MANIFEST, containers=tuple(attrs.evolve(each, exited=0) for each in MANIFEST.containers))
    (found,) = differences(ended, HERE)
    assert (found.subject, found.force) == ("containers", Force.NEVER)


def test_a_runsc_of_2024_compares_no_version_and_another_build_of_it_is_as_good():
    old = attrs.evolve(MANIFEST, runsc=attrs.evolve(MANIFEST.runsc, version="release-20240729.0"))
    assert differences(old, attrs.evolve(HERE, runtime=OLD, runsc_sha256=Y)) == ()
    (found,) = differences(old, HERE)
    assert found.subject == "runsc"


@pytest.mark.parametrize("name", [name for name in ONE_BY_ONE if name != "a volume less"])
def test_of_a_snapshot_of_volumes_alone_nothing_but_the_volumes_counts(name):
    data = attrs.evolve(MANIFEST, scope=SnapshotScope.DATA)
    assert differences(data, attrs.evolve(HERE, **ONE_BY_ONE[name][0])) == ()
    assert [each.subject for each in differences(data, attrs.evolve(HERE, volumes=("other",)))] == ["volume work"]


def test_an_older_manifest_says_nothing_of_the_processor_and_so_is_not_refused_for_it():
    assert differences(attrs.evolve(MANIFEST, cpu_features=None), attrs.evolve(HERE, cpu_features=("fpu",))) == ()


@pytest.mark.parametrize(
    ("driver", "minors", "is_refused"),
    [("570.1", (5, 6), True), ("570.1", (0, 1), False), ("580.1", (5, 6), False), ("unheard of", (5, 6), False)],
)
def test_case_032_cuda_contexts_move_to_other_gpus_only_by_a_driver_that_maps_them(driver, minors, is_refused):
    with_contexts = attrs.evolve(MANIFEST, cuda_checkpoint="/usr/bin/cuda-checkpoint", driver=driver)
    side = attrs.evolve(HERE.containers[1], gpus=[gpu_here(snapshot_gpu(0, 2 + minors[0]))])
    there = attrs.evolve(HERE, driver=driver, containers=[gpus(*minors)["containers"][0], side, HERE.containers[2]])
    found = differences(with_contexts, there)
    assert [(each.subject, each.force) for each in found] == [("device map", Force.NEVER)] * is_refused
    assert differences(attrs.evolve(with_contexts, cuda_checkpoint=None), there) == ()


# ---- containers that are still to get their devices

GIVEN = attrs.evolve(SHAPE, mounts=SHAPE.mounts[:1], devices=(), user=attrs.evolve(SHAPE.user, additional_gids=()))


def with_injection(paths, **changes):
    shape_now = attrs.evolve(GIVEN, **changes)
    return attrs.evolve(HERE, containers=container(shape=shape_now, injected=Injected(paths=paths)))


@pytest.mark.parametrize("paths", [None, frozenset({"/data", "/dev/fuse"})])
def test_what_injection_gives_is_no_difference_yet(paths):
    assert differences(MANIFEST, with_injection(paths)) == ()
    # What the bundle brings there is replaced by what is injected.
    assert differences(MANIFEST, with_injection(paths, mounts=(*GIVEN.mounts, bind("/data", "rw")))) == ()


def test_what_injection_cannot_give_is_missing_and_cannot_be_forced():
    assert differences(MANIFEST, with_injection(frozenset())) == (
        expected("main: mount /data", "bind rbind,ro", "absent", MOUNT, NEVER),
        expected("main: device /dev/fuse", "c", "absent", MOUNT, NEVER),
    )


@pytest.mark.parametrize("paths", [None, frozenset({"/data", "/dev/fuse", "/new"})])
def test_what_the_bundle_itself_has_is_compared_before_anything_is_injected(paths):
    changes: dict[str, Any] = {
        "args": ("crash",),
        "mounts": (*GIVEN.mounts, bind("/new", "ro")),
        "devices": (ShapeDevice(path="/dev/kvm", type="c"),),
        "user": attrs.evolve(SHAPE.user, additional_gids=(9,)),
    }
    found = [each.subject for each in differences(MANIFEST, with_injection(paths, **changes))]
    assert found == [
        "main: argument 0", "main: argument 1", "main: argument 2", "main: user additionalGids", "main: mount /new",
        "main: device /dev/kvm",
    ]  # fmt: skip
