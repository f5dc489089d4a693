"""What only a real file system has: owners, second names, attributes, holes; and any tree, any bytes."""

import io
import itertools
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor import volume_tar
from supervisor.host import archiving, unpacking
from supervisor.host.beneath import Beneath
from supervisor.host.trees import remove_tree
from supervisor.volume_tar import END, ArchiveReader, Member, MemberKind
from tests.needs import Tool, need

VOLUMES = ("work",)


@pytest.fixture
def root(tmp_path):
    """Removed here: nobody else removes what is hundreds of directories deep."""
    directory = tmp_path / "root"
    directory.mkdir()
    yield directory
    remove_tree(Beneath([tmp_path]), directory)


def there_and_back(root: Path) -> Path:
    """The volume after it was packed and unpacked."""
    beneath = Beneath([root])
    archive, target = root / "volumes.tar", root / "new"
    archiving.write_archive(beneath, archive, root / "volumes", VOLUMES)
    unpacking.unpack_archive(beneath, archive, target, VOLUMES)
    return target / "work"


def picture(top: Path) -> dict[str, object]:
    """Everything about everything below a directory, itself included, but for inodes."""
    found: dict[str, object] = {}
    inodes: dict[int, str] = {}
    for path in [top, *sorted(top.rglob("*"))]:
        name, it = str(path.relative_to(top)), path.lstat()
        first = inodes.setdefault(it.st_ino, name)
        content: object = None
        if stat.S_ISREG(it.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(it.st_mode):
            content = os.readlink(path)  # noqa: PTH115  a Path would not say it as it stands there
        xattrs = {} if path.is_symlink() else {key: os.getxattr(path, key) for key in os.listxattr(path)}
        found[name] = (it.st_mode, it.st_uid, it.st_gid, it.st_mtime_ns, first, content, xattrs)
    return found


def test_owners_modes_times_and_second_names_are_kept(root):
    need(Tool.ROOT)
    work = root / "volumes" / "work"
    work.mkdir(parents=True)
    (work / "a").write_bytes(b"content")
    (work / "sub").mkdir()
    os.link(work / "a", work / "sub" / "b")
    (work / "setuid").write_bytes(b"x")
    os.chown(work / "setuid", 1000, 1001)
    (work / "setuid").chmod(0o4711)
    (work / "none").write_bytes(b"secret")
    (work / "none").chmod(0)
    (work / "link").symlink_to("/etc/shadow")
    os.chown(work / "link", 7, 8, follow_symlinks=False)
    os.mkfifo(work / "fifo")
    (work / "fifo").chmod(0o620)
    os.chown(work / "sub", 4294967294, 65534)
    (work / "sub").chmod(0o1777)
    os.utime(work / "a", ns=(0, 1_234_567_890_123_456_789))
    os.utime(work / "link", ns=(0, -1), follow_symlinks=False)
    os.utime(work / "sub", ns=(0, 1))
    work.chmod(0o2750)
    assert picture(there_and_back(root)) == picture(work)


def test_attributes_of_the_application_are_kept(root):
    work = root / "volumes" / "work"
    work.mkdir(parents=True)
    (work / "a").write_bytes(b"")
    os.setxattr(work / "a", "user.any", bytes(range(256)))
    os.setxattr(work / "a", "user.empty", b"")
    os.setxattr(work, "user.directory", b"yes")
    os.setxattr(work / "a", "user.with=sign", b"left out")
    expected = picture(work)
    made = there_and_back(root)
    os.removexattr(work / "a", "user.with=sign")
    assert picture(made) == picture(work) != expected


def test_holes_take_no_room_where_they_are_unpacked(root):
    work = root / "volumes" / "work"
    work.mkdir(parents=True)
    (work / "a").write_bytes(b"x")
    os.truncate(work / "a", 32 << 20)
    made = there_and_back(root) / "a"
    assert made.stat().st_size == 32 << 20
    assert made.stat().st_blocks * 512 <= 4 << 20
    assert made.read_bytes() == (work / "a").read_bytes()


def test_a_file_that_is_shortened_meanwhile_is_no_content(root, monkeypatch):
    work = root / "volumes" / "work"
    work.mkdir(parents=True)
    (work / "a").write_bytes(b"x" * 100)
    monkeypatch.setattr(os, "read", lambda *_: b"")
    with pytest.raises(OSError, match="shorter"):
        archiving.write_archive(Beneath([root]), root / "volumes.tar", root / "volumes", VOLUMES)
    assert not (root / "volumes.tar").exists()


def test_directories_may_stand_deep_within_each_other_but_not_without_an_end(root):
    work = root / "volumes" / "work"
    work.mkdir(parents=True)
    here = os.open(work, os.O_RDONLY)
    for depth in itertools.count(2):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
        if depth == volume_tar.DEPTH_MAX:
            break
    there_and_back(root)
    os.mkdir("d", dir_fd=here)
    os.close(here)
    with pytest.raises(OSError, match="too deep"):
        archiving.write_archive(Beneath([root]), root / "again.tar", root / "volumes", VOLUMES)
    assert not (root / "again.tar").exists()


def test_what_is_mounted_in_a_volume_is_not_entered(root):
    need(Tool.ROOT, Tool.NAMESPACES)
    inside = root / "volumes" / "work" / "mounted"
    inside.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", inside], check=True)
    try:
        with pytest.raises(OSError, match="mounted"):
            archiving.write_archive(Beneath([root]), root / "volumes.tar", root / "volumes", VOLUMES)
    finally:
        subprocess.run(["umount", inside], check=True)


NAMES = st.binary(min_size=1, max_size=20).filter(lambda name: not {0, 47} & set(name) and name not in {b".", b".."})


@st.composite
def trees(draw, depth=0):
    """A directory as nested dicts: bytes for a file, text for a symlink, None for a fifo."""
    leaf = st.one_of(st.binary(max_size=2000), st.text("abc/.", min_size=1, max_size=9), st.none())
    below = leaf if depth > 2 else st.one_of(leaf, trees(depth + 1))
    return draw(st.dictionaries(NAMES, below, max_size=4))


def plant(directory: Path, tree) -> None:
    directory.mkdir(parents=True)
    for name, what in tree.items():
        path = directory / os.fsdecode(name)
        if isinstance(what, dict):
            plant(path, what)
        elif isinstance(what, bytes):
            path.write_bytes(what)
        elif isinstance(what, str):
            path.symlink_to(what)
        else:
            os.mkfifo(path)


@given(tree=trees())
@settings(max_examples=40, deadline=None)
def test_any_tree_comes_back_as_it_was(tree, tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    plant(root / "volumes" / "work", tree)
    assert picture(there_and_back(root)) == picture(root / "volumes" / "work")
    shutil.rmtree(root)


MEMBERS = st.builds(
    Member,
    name=st.lists(st.sampled_from(["work", "a", "b", "..", "", "c" * 300]), min_size=1, max_size=4).map(tuple),
    kind=st.sampled_from(MemberKind),
    mode=st.integers(0, 0o7777),
    mtime_ns=st.integers(-(1 << 62), 1 << 62),
    target=st.sampled_from(["", "work/a", "../../x", "/etc/passwd", "work", "a" * 5000]),
)


@given(
    members=st.lists(MEMBERS, max_size=5),
    flips=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=3),
)
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_unpacked_within_their_place_or_not_at_all(members, flips, tmp_path_factory):
    root = tmp_path_factory.mktemp("bytes")
    (root / "outside").write_bytes(b"outside")
    data = bytearray(volume_tar.header(Member(name=VOLUMES, kind=MemberKind.DIRECTORY, mode=0o777)))
    data += b"".join(volume_tar.header(member) for member in members) + END
    for place, byte in flips:
        data[place % len(data)] = byte
    (root / "volumes.tar").write_bytes(data)
    try:
        unpacking.unpack_archive(Beneath([root]), root / "volumes.tar", root / "new", VOLUMES)
    except OSError:
        assert not (root / "new").exists()
    assert (root / "outside").read_bytes() == b"outside"
    assert {path.name for path in root.iterdir()} <= {"outside", "volumes.tar", "new"}
    shutil.rmtree(root)


@given(data=st.binary(max_size=3000))
def test_any_bytes_are_read_to_an_end(data):
    reader = ArchiveReader(io.BytesIO(data), VOLUMES)
    with pytest.raises(OSError, match="damaged"):
        for _ in reader.members():
            pass


class Large(bytes):
    """Bytes of which only a little at a time is ever copied."""

    def __getitem__(self, which):
        part = super().__getitem__(which)
        assert not isinstance(part, bytes) or len(part) <= 1 << 10
        return part

    def partition(self, _separator):
        pytest.fail("all of it would be copied")


class InLargeReads(io.BytesIO):
    def read(self, size=-1):
        data = super().read(size)
        return Large(data) if len(data) > volume_tar.BLOCK_BYTES else data


def test_a_record_that_is_read_takes_no_copy_of_all_that_follow():
    records = b"6 a=b\n" * 100_000
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    top = volume_tar.header(Member(name=VOLUMES, kind=MemberKind.DIRECTORY, mode=0o777))
    data = info.tobuf(tarfile.PAX_FORMAT) + records + volume_tar.padding(len(records)) + top + END
    assert [member.name for member in ArchiveReader(InLargeReads(data), VOLUMES).members()] == [VOLUMES]
