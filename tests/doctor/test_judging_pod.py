"""Judgements of what a pod has whatever runs in it: directories, mounts, cgroups, the clock."""

from pathlib import Path

import pytest

from actors.ports import FileKind
from statemachine.reasons import Reason
from supervisor.doctor.directories import DirectoryFacts, judge_run_dir, judge_state_dir, judge_unseen
from supervisor.doctor.machine import judge_cgroups, judge_clock
from supervisor.doctor.mounts import MountPoint, mount_of, mounts_of
from tests.doctor.saying import FAIL, OK, WARN, said

R = Reason


def directory(path="/state", **facts):
    given = {
        "path": Path(path),
        "standing": Path(path),
        "kind": FileKind.DIRECTORY,
        "mount": MountPoint(path="/", file_system="ext4"),
        "free_bytes": 1 << 40,
        "may_change": True,
        "is_root": True,
    }
    return DirectoryFacts(**{**given, **facts})


def on(file_system, *options):
    return MountPoint(path="/", file_system=file_system, options=frozenset(options))


OBSTACLES = [
    (directory(kind=FileKind.REGULAR), FAIL, "no directory"),
    (directory(mount=on("proc")), FAIL, "holds no files"),
    (directory(mount=on("ext4", "ro")), FAIL, "read-only"),
    (directory(may_change=False), FAIL, "not even by root"),
    (directory(may_change=False, is_root=False), WARN, "not known"),
]


@pytest.mark.parametrize(("facts", "status", "words"), OBSTACLES)
def test_a_directory_that_cannot_be_written_is_told(facts, status, words):
    assert said(judge_state_dir(facts), status, R.STATE_UNWRITABLE, words)
    assert said(judge_run_dir(facts, socket=Path("/run/control.sock")), status, R.STATE_UNWRITABLE, words)


@pytest.mark.parametrize(
    ("facts", "status", "reason", "words"),
    [
        (directory(), OK, None, "1024 GiB free, on ext4"),
        (directory(mount=None), OK, None, "1024 GiB"),
        (directory(standing=Path("/")), OK, None, "would be made below /"),
        (directory(mount=on("tmpfs")), WARN, R.STATE_UNWRITABLE, "in memory"),
        (directory(mount=on("overlay")), WARN, R.STATE_UNWRITABLE, "snapshots end with it"),
        (directory(free_bytes=(1 << 30) - 1), WARN, R.INSUFFICIENT_DISK, "1023 MiB"),
    ],
)
def test_a_state_directory_outlives_the_pod_and_has_room(facts, status, reason, words):
    assert said(judge_state_dir(facts), status, reason, words)


@pytest.mark.parametrize(("size_bytes", "status"), [(107, OK), (108, FAIL)])
def test_a_sockets_path_may_have_107_bytes(size_bytes, status):
    socket = Path(f"/{'x' * (size_bytes - 1)}")
    check = judge_run_dir(directory(mount=on("tmpfs")), socket=socket)
    assert said(check, status, None if status is OK else R.STATE_UNWRITABLE)


def test_a_directory_that_nobody_may_look_at_is_in_the_way_of_root_alone():
    error = PermissionError(13, "Permission denied")
    assert said(judge_unseen("state-dir", Path("/x"), error, is_root=True), FAIL, R.STATE_UNWRITABLE, "denied")
    assert said(judge_unseen("state-dir", Path("/x"), error, is_root=False), WARN, R.STATE_UNWRITABLE, "denied")


@pytest.mark.parametrize(
    ("mounts", "status", "words"),
    [
        ([MountPoint(path="/sys/fs/cgroup", file_system="cgroup2")], OK, "can be written"),
        ([MountPoint(path="/sys/fs/cgroup", file_system="cgroup2", options=frozenset({"ro"}))], WARN, "read-only"),
        ([MountPoint(path="/sys/fs/cgroup", file_system="tmpfs")], WARN, "cgroup v1"),
        ([MountPoint(path="/", file_system="ext4")], WARN, "nothing is mounted"),
        ([], WARN, "nothing is mounted"),
    ],
)
def test_cgroups_are_told_and_never_in_the_way(mounts, status, words):
    assert said(judge_cgroups(mounts), status, None if status is OK else R.CGROUP_UNAVAILABLE, words)


BOOT = "f60afc04-b3ac-4200-8465-a2b39e81671d"


@pytest.mark.parametrize(
    ("now_s", "boot_id", "status", "reason"),
    [
        (1.8e9, BOOT, OK, None),
        (0.0, BOOT, WARN, R.INVALID_VALUE),
        (1e11, BOOT, WARN, R.INVALID_VALUE),
        (1e300, BOOT, WARN, R.INVALID_VALUE),
        (float("nan"), BOOT, WARN, R.INVALID_VALUE),
        (1.8e9, None, FAIL, R.PROCESSES_UNREADABLE),
        (1.8e9, "", FAIL, R.PROCESSES_UNREADABLE),
        (1.8e9, "boot-1", FAIL, R.PROCESSES_UNREADABLE),
    ],
)
def test_a_clock_has_a_sane_year_and_the_kernel_a_boot_id(now_s, boot_id, status, reason):
    assert said(judge_clock(now_s, boot_id), status, reason)


MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
31 23 0:28 / /mnt/a\\040b ro,relatime - tmpfs tmpfs rw,mode=755
32 23 0:29 / /mnt/c rw - tmpfs none ro
33 23 0:30 / /mnt/c rw - ext4 /dev/vdb rw
34 23 0:31 / /mnt/d rw - 9p
no mount
"""


def test_mounts_are_read_with_their_options_and_escapes():
    found = {mount.path: mount for mount in mounts_of(MOUNTINFO)}
    assert list(found) == ["/proc", "/", "/mnt/a b", "/mnt/c"]
    assert [found[path].file_system for path in found] == ["proc", "ext4", "tmpfs", "ext4"]
    assert [found[path].is_read_only for path in found] == [False, False, True, False]
    assert mounts_of("") == ()


@pytest.mark.parametrize(
    ("path", "file_system"),
    [("/proc/self", "proc"), ("/procfs", "ext4"), ("/mnt/a b/c", "tmpfs"), ("/mnt/c/x", "ext4"), ("/", "ext4")],
)
def test_a_path_is_in_the_deepest_mount_and_the_last_one_at_a_place(path, file_system):
    found = mount_of(path, mounts_of(MOUNTINFO))
    assert found is not None
    assert found.file_system == file_system
    assert mount_of(path, ()) is None
