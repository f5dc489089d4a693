"""Volumes into an archive and out of it: what holds for the real port and for the simulated one."""

from __future__ import annotations

import errno
import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from actors.ports import Archived, DamagedArchiveError
from supervisor import volume_tar
from supervisor.volume_tar import END, Member, MemberKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.ports import Files
    from tests.contract.places import Place

pytestmark = pytest.mark.anyio

K = MemberKind


def packed(*members: tuple[Member, bytes]) -> bytes:
    """An archive of these members, whatever they say."""
    parts = [volume_tar.header(member) + data + volume_tar.padding(len(data)) for member, data in members]
    return b"".join(parts) + END


def member(name: str, kind: MemberKind = K.REGULAR, data: bytes = b"", **more: Any) -> tuple[Member, bytes]:
    mode = 0o777 if kind is K.DIRECTORY else 0o644
    return Member(name=tuple(name.split("/")), kind=kind, size_bytes=len(data), **{"mode": mode, **more}), data


def raw(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **more: Any) -> bytes:
    """A member that our own writer would not make."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, more.pop("size", len(data))
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(tarfile.PAX_FORMAT) + data + volume_tar.padding(len(data))


TOP = member("work", K.DIRECTORY)
VOLUME = volume_tar.header(TOP[0])


def saying(records: bytes) -> bytes:
    """A volume with a file of which this is said before it."""
    return VOLUME + raw("x", tarfile.XHDTYPE, records) + raw("work/a") + END


async def unpacked(place: Place, files: Files, data: bytes, *volumes: str) -> None:
    place.put_file(place.base / "it.tar", data)
    await files.unpack_archive(place.base / "it.tar", place.root / "new", volumes or ("work",))


def put_example(place: Place) -> Path:
    """A volume with everything in it that both places know."""
    source = place.root / "volumes"
    work = source / "work"
    place.put_file(work / "file", b"content")
    place.put_file(work / "empty")
    place.put_file(work / "large", b"x" * (volume_tar.CHUNK_BYTES + 1))
    place.put_file(work / "holes", bytes(volume_tar.CHUNK_BYTES * 2) + b"end")
    place.put_file(work / "deep" / "er" / "ü\udcff", b"name")
    place.put_file(work / ("n" * 255), b"long")
    place.put_directory(work / "bare")
    place.put_symlink(work / "link", "/etc/passwd")
    place.put_symlink(work / "deep" / "loop", "../deep")
    place.put_fifo(work / "fifo")
    return source


def content(place: Place, path: Path) -> dict[str, Any]:
    """What is below a path, without inodes and times of directories, by relative name."""
    prefix = str(path.relative_to(place.base)) + "/"
    return {name.removeprefix(prefix): what for name, what in place.tree().items() if name.startswith(prefix)}


async def test_what_was_packed_is_unpacked_again(place: Place, files: Files):
    source = put_example(place)
    archived = await files.write_archive(place.root / "volumes.tar", source, ["work"])
    assert (archived.members, archived.left_out) == (13, ())
    await files.unpack_archive(place.root / "volumes.tar", place.root / "new", ["work"])
    assert content(place, place.root / "new") == content(place, source)
    assert place.mode(place.root / "new") == 0o700
    assert place.mode(place.root / "volumes.tar") == 0o600


async def test_the_same_content_makes_the_same_bytes_whatever_the_order_it_came_in(place: Place, files: Files):
    source = put_example(place)
    await files.write_archive(place.root / "one.tar", source, ["work"])
    await files.unpack_archive(place.root / "one.tar", place.root / "new", ["work"])
    await files.write_archive(place.root / "two.tar", place.root / "new", ["work"])
    assert await files.digest(place.root / "one.tar") == await files.digest(place.root / "two.tar")


async def test_an_archive_is_a_tar_that_others_can_read(place: Place, files: Files):
    source = put_example(place)
    await files.write_archive(place.root / "volumes.tar", source, ["work"])
    data = await files.read(place.root / "volumes.tar", limit_bytes=1 << 30)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        kinds = {info.name: info.type for info in archive}
        found = archive.extractfile("work/file")
        assert found is not None
        assert found.read() == b"content"
    assert (kinds["work"], kinds["work/link"], kinds["work/fifo"]) == (
        tarfile.DIRTYPE,
        tarfile.SYMTYPE,
        tarfile.FIFOTYPE,
    )
    assert list(kinds)[:2] == ["work", "work/empty"]


async def test_several_volumes_are_in_the_order_of_their_names(place: Place, files: Files):
    for name in ("b", "a"):
        place.put_file(place.root / "volumes" / name / "file", name.encode())
    await files.write_archive(place.root / "volumes.tar", place.root / "volumes", ["b", "a"])
    await files.unpack_archive(place.root / "volumes.tar", place.root / "new", ["a", "b"])
    assert await files.read(place.root / "new" / "b" / "file", limit_bytes=9) == b"b"
    assert await files.list_directory(place.root / "new") == ("a", "b")


async def test_sockets_and_devices_are_left_out_and_named(place: Place, files: Files):
    work = place.root / "volumes" / "work"
    place.put_directory(work / "sub")
    place.put_socket(work / "sub" / "sock")
    place.put_null(work / "null")
    archived = await files.write_archive(place.root / "volumes.tar", place.root / "volumes", ["work"])
    assert archived == Archived(members=2, left_out=("work/null", "work/sub/sock"))


async def test_an_archive_takes_no_other_files_place(place: Place, files: Files):
    put_example(place)
    place.put_file(place.root / "volumes.tar", b"mine")
    with pytest.raises(FileExistsError):
        await files.write_archive(place.root / "volumes.tar", place.root / "volumes", ["work"])
    assert await files.read(place.root / "volumes.tar", limit_bytes=9) == b"mine"


async def test_nothing_is_unpacked_over_what_is_there(place: Place, files: Files):
    place.put_file(place.root / "new" / "mine", b"mine")
    with pytest.raises(FileExistsError):
        await unpacked(place, files, packed(TOP))
    assert await files.list_directory(place.root / "new") == ("mine",)


@pytest.mark.parametrize("what", ["absent", "a file", "a symlink"])
async def test_a_volume_that_is_no_directory_makes_no_archive(place: Place, files: Files, what: str):
    place.put_directory(place.root / "volumes")
    if what == "a file":
        place.put_file(place.root / "volumes" / "work")
    if what == "a symlink":
        place.put_symlink(place.root / "volumes" / "work", "/etc")
    with pytest.raises(OSError) as caught:
        await files.write_archive(place.root / "volumes.tar", place.root / "volumes", ["work"])
    expected = {"absent": errno.ENOENT, "a file": errno.ENOTDIR, "a symlink": errno.ELOOP}
    assert caught.value.errno == expected[what]
    assert await files.list_directory(place.root) == ("volumes",)


async def test_a_disk_that_is_too_small_keeps_no_part(place: Place, files: Files):
    put_example(place)
    small = place.root / "small"
    place.put_directory(small)
    with place.mounted(small, capacity_bytes=1 << 20):
        with pytest.raises(OSError) as caught:
            await files.write_archive(small / "volumes.tar", place.root / "volumes", ["work"])
        assert caught.value.errno == errno.ENOSPC
        await files.write_archive(place.root / "volumes.tar", place.root / "volumes", ["work"])
        with pytest.raises(OSError) as caught:
            await files.unpack_archive(place.root / "volumes.tar", small / "new", ["work"])
        assert caught.value.errno == errno.ENOSPC
        assert await files.list_directory(small) == ()


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "no tar": b"x" * 1024,
    "cut off": packed(TOP, member("work/a", data=b"x" * 600))[:1600],
    "cut off in a header": VOLUME[:100],
    "without an end": VOLUME,
    "one empty block": VOLUME + bytes(512),
    "something behind its end": packed(TOP) + bytes(512) + b"x",
    "something behind a content": VOLUME + raw("work/a", data=b"abc")[:-1] + b"x" + END,
    "no volume": packed(),
    "a wrong sum": VOLUME[:20] + b"x" + VOLUME[21:] + END,
    "another volume": packed(TOP, member("other", K.DIRECTORY)),
    "a volume twice": packed(TOP, TOP),
    "a volume that is a file": packed(member("work")),
    "a volume that is a symlink": packed(member("work", K.SYMLINK, target="/etc")),
    "the way up": VOLUME + raw("work/../a") + END,
    "the way up at the end": VOLUME + raw("work/..") + END,
    "an absolute name": VOLUME + raw("/etc/a") + END,
    "an empty name": VOLUME + raw("work//a") + END,
    "a dot": VOLUME + raw("work/./a") + END,
    "a name that is too long": VOLUME + raw("work/" + "n" * 256) + END,
    "no directory before": packed(TOP, member("work/a/b")),
    "a directory that was left": packed(
        TOP, member("work/a", K.DIRECTORY), member("work/b", K.DIRECTORY), member("work/a/c")
    ),
    "a way through a symlink": packed(TOP, member("work/a", K.SYMLINK, target="/etc"), member("work/a/b")),
    "a file twice": packed(TOP, member("work/a"), member("work/a")),
    "a directory over a symlink": packed(TOP, member("work/a", K.SYMLINK, target="/"), member("work/a", K.DIRECTORY)),
    "a file over a symlink": packed(TOP, member("work/a", K.SYMLINK, target="/x"), member("work/a", data=b"x")),
    "a link to what is not there": packed(TOP, member("work/a", K.HARD_LINK, target="work/b")),
    "a link that leads up": VOLUME + raw("work/a", tarfile.LNKTYPE, linkname="work/../../x") + END,
    "a link to an absolute name": VOLUME + raw("work/a", tarfile.LNKTYPE, linkname="/etc/passwd") + END,
    "a link to a directory": packed(TOP, member("work/a", K.HARD_LINK, target="work")),
    "a link to a symlink": packed(
        TOP, member("work/a", K.SYMLINK, target="/etc/passwd"), member("work/b", K.HARD_LINK, target="work/a")
    ),
    "a link through a symlink": packed(
        TOP, member("work/a", K.SYMLINK, target="/etc"), member("work/b", K.HARD_LINK, target="work/a/passwd")
    ),
    "a symlink to nowhere": VOLUME + raw("work/a", tarfile.SYMTYPE) + END,
    "a device": VOLUME + raw("work/a", tarfile.CHRTYPE, devmajor=195, devminor=0) + END,
    "a block device": VOLUME + raw("work/a", tarfile.BLKTYPE, devmajor=8) + END,
    "an unknown kind": VOLUME + raw("work/a", b"V") + END,
    "a long name as GNU has it": VOLUME + raw("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"work/a\0") + END,
    "global records": VOLUME + raw("g", tarfile.XGLTYPE, b"13 path=etc\n\n") + END,
    "a directory with a content": VOLUME + raw("work/a", tarfile.DIRTYPE, b"x") + END,
    "a time that is none": VOLUME + raw("work/a", pax_headers={"mtime": "nan"}) + END,
    "a name in the records": VOLUME + raw("work/a", pax_headers={"path": "../a"}) + END,
    "a size in the records": VOLUME + raw("work/a", pax_headers={"size": "-1"}) + END,
    "a size that is not there": VOLUME + raw("work/a", pax_headers={"size": str(1 << 62)}) + END,
    "an owner in the records": VOLUME + raw("work/a", pax_headers={"uid": "4294967295"}) + END,
    "a label of the host": VOLUME + raw("work/a", pax_headers={"SCHILY.xattr.security.selinux": "x"}) + END,
    "records that are none": saying(b"no records"),
    "records that are longer than all of them": saying(b"18 path=work/b\n"),
    "records that are too short": saying(b"12 path=work/b\n"),
    "a record without a key": saying(b"5 =b\n"),
    "a record of nothing": saying(b"0 "),
    "records of records": VOLUME + raw("x", tarfile.XHDTYPE) + raw("x", tarfile.XHDTYPE) + END,
    "a volume's parent as a member": raw("work/..", tarfile.DIRTYPE) + END,
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_archive_is_refused_and_leaves_nothing(place: Place, files: Files, what: str):
    place.put_file(place.root / "outside", b"outside")
    place.put_file(place.base / "it.tar", HOSTILE[what])
    before = place.tree()
    with pytest.raises(DamagedArchiveError) as caught:
        await files.unpack_archive(place.base / "it.tar", place.root / "new", ("work",))
    assert caught.value.errno == errno.EBADMSG
    assert content(place, place.root) == {
        name.removeprefix("root/"): what for name, what in before.items() if name.startswith("root/")
    }


async def test_a_symlink_to_anywhere_is_made_and_never_followed(place: Place, files: Files):
    await unpacked(place, files, packed(TOP, member("work/a", K.SYMLINK, target="../../../outside")))
    assert content(place, place.root / "new")["work/a"] == "-> ../../../outside"


async def test_a_hard_link_has_the_content_of_its_file(place: Place, files: Files):
    first = member("work/a", data=b"both")
    await unpacked(place, files, packed(TOP, first, member("work/b", K.HARD_LINK, target="work/a")))
    assert await files.read(place.root / "new" / "work" / "b", limit_bytes=9) == b"both"


async def test_a_volume_is_open_to_all_below_what_is_open_to_nobody(place: Place, files: Files):
    await files.make_volume(place.root / "a1" / "volumes" / "work")
    modes = [place.mode(place.root / way) for way in ("a1", "a1/volumes", "a1/volumes/work")]
    assert modes == [0o700, 0o700, 0o777]


async def test_a_volume_that_is_there_is_left_as_it_is(place: Place, files: Files):
    place.put_file(place.root / "work" / "mine", b"mine")
    await files.make_volume(place.root / "work")
    assert place.mode(place.root / "work") == 0o755
    assert await files.list_directory(place.root / "work") == ("mine",)


async def test_a_volume_over_which_somebody_was_killed_is_opened(place: Place, files: Files):
    await files.make_directory(place.root / "work")
    await files.make_volume(place.root / "work")
    assert place.mode(place.root / "work") == 0o777


async def test_what_an_archive_would_take_is_known_before(place: Place, files: Files):
    source = put_example(place)
    measured = await files.measure_volumes(source, ["work", "absent"])
    await files.write_archive(place.root / "volumes.tar", source, ["work"])
    found = await files.stat(place.root / "volumes.tar")
    assert found is not None
    assert measured <= found.size_bytes <= measured + 13 * 1024


@pytest.mark.parametrize(
    ("put", "number"),
    [
        (lambda place, path: place.put_file(path), errno.ENOTDIR),
        (lambda place, path: place.put_symlink(path, "/etc"), errno.ELOOP),
    ],
)
async def test_no_volume_is_made_of_something_else(
    place: Place, files: Files, put: Callable[[Place, Path], None], number: int
):
    put(place, place.root / "work")
    with pytest.raises(OSError) as caught:
        await files.make_volume(place.root / "work")
    assert caught.value.errno == number
