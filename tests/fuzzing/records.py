"""Fuzz targets for what Greenroom itself wrote, and what a disk or somebody else may have made of it since.

Journals, manifests (local and stored), the records of a sandbox and of an assignment, archives of volumes.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.codec import plain, structure
from actors.journal import replay
from actors.layout import StateDir
from actors.manifest import as_json, parse_manifest
from actors.ports import DamagedArchiveError
from actors.runsc.record import read_record
from actors.steps.assign import read_assignment
from actors.stores.format import CHUNK_BYTES, parse_stored, stored_as_bytes
from actors.stores.places import snapshot_place
from actors.strict_json import canonical
from statemachine.actor import Actor
from statemachine.problem import Step
from supervisor.followed import followed_before
from supervisor.volume_tar import END, ArchiveReader, Member, MemberKind, header, padding
from tests.actors.memory_files import DIRECTORY as A_DIRECTORY
from tests.actors.memory_files import MemoryFiles
from tests.actors.test_manifest import MANIFEST
from tests.formats.recording import DIRECTORY
from tests.fuzzing.promises import Target, finished, hold, refused

if TYPE_CHECKING:
    from collections.abc import Iterable

_RELEASES: Final = tuple(sorted(path for path in DIRECTORY.iterdir() if (path / "journal.jsonl").exists()))
_PLACE: Final = snapshot_place("s3://bucket/u1/s1", step=Step.RESTORE)


def _recorded(name: str) -> Iterable[tuple[str, bytes]]:
    for release in _RELEASES:
        yield f"{release.name}-{name}", (release / name).read_bytes()


# ------------------------------------------------------------------------------------------------------------- journal


def check_journal(data: bytes) -> None:
    """A journal tells a memory that can be written down, or is refused; a torn last line never matters."""
    told = refused(lambda: replay(data, subject="journal.jsonl"))
    if told is None:
        return
    hold(structure(plain(told.actor), Actor) == told.actor, "what it tells can be written down again")
    hold(
        replay(data[: len(data) - told.torn_bytes], subject="journal.jsonl").actor == told.actor,
        "torn lines are dropped",
    )


def _journal_seeds() -> Iterable[tuple[str, bytes]]:
    for name, data in _recorded("journal.jsonl"):
        lines = data.splitlines(keepends=True)
        # A whole one is longer than an input may be; what follows a base is what it is about.
        for first in range(0, len(lines), 6):
            yield f"{name}-{first}", b"".join((lines[0], *lines[first or 1 : first + 6]))
            yield f"{name}-{first}-alone", b"".join(lines[first : first + 3])


# ------------------------------------------------------------------------------------------------------------ manifest


def check_manifest(data: bytes) -> None:
    """A manifest, local or stored, is refused, or is read again as it was; a stored one's chunks are its files."""
    manifest = refused(lambda: parse_manifest(data, path="/s/manifest.json"))
    if manifest is None:
        hold(refused(lambda: parse_stored(data, _PLACE, step=Step.RESTORE)) is None, "a damaged one is not fetched")
        return
    hold(
        parse_manifest(canonical(as_json(manifest)), path="/s/manifest.json") == manifest,
        "what is written is read again",
    )
    hold(not manifest.absent, "it has what its scope demands")
    names = [each.name for each in manifest.files]
    hold(not any("/" in name or name in {"", ".", ".."} for name in names), "its files are in its own directory")
    stored = refused(lambda: parse_stored(data, _PLACE, step=Step.RESTORE))
    if stored is not None:
        hold([each.file for each in stored.files] == list(manifest.files), "it has the chunks of just its files")
        for each in stored.files:
            sizes = [chunk.size_bytes for chunk in each.chunks]
            hold(all(0 < size <= CHUNK_BYTES for size in sizes), "no chunk is larger than chunks are")
            hold(sum(sizes) == each.file.size_bytes, "the chunks make up the file")
        hold(parse_stored(stored_as_bytes(stored), _PLACE, step=Step.RESTORE) == stored, "a stored one is read again")


def _manifest_seeds() -> Iterable[tuple[str, bytes]]:
    yield "local.json", canonical(as_json(MANIFEST))
    chunks = {
        each.name: [{"size": each.size_bytes, "blake3": each.blake3}] if each.size_bytes else []
        for each in MANIFEST.files
    }
    yield "stored.json", canonical({**as_json(MANIFEST), "chunks": chunks})
    yield from _recorded("manifest.json")


_MANIFEST_WORDS: Final = (
    "actor", "id", "createdAt", "generation", "scope", "Full", "Data", "greenroom", "bootId", "arch", "runsc",
    "version", "sha256", "platform", "flags", "driver", "toolkit", "containers", "name", "imageDigest", "shape",
    "args", "user", "mounts", "devices", "capabilities", "gpus", "ordinal", "uuid", "model", "minor", "pciBusId",
    "exited", "volumes", "files", "size", "blake3", "chunks", "others", "cpuFeatures", "cudaCheckpoint",
    "checkpoint.img", "pages.img", "pages_meta.img", "volumes.tar", "manifest.json", "../x", "null", "1e999",
    "67108864", "u1", "s1",
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- records

_STATE: Final = StateDir(Path("/s"))
_ACTOR: Final = _STATE.actor("a1")


def check_record(data: bytes) -> None:
    """The first byte says which file it is: a sandbox's record, an assignment, or where an actor came from."""
    kind, content = data[0] % 3 if data else 0, data[1:]
    if kind == 0:
        check_sandbox_record(content)
    elif kind == 1:
        check_written_assignment(content)
    else:
        check_followed(content)


def check_sandbox_record(data: bytes) -> None:
    """It is refused, or is read again as it was."""
    directory = Path("/s/sandboxes/x")
    record = refused(lambda: finished(read_record(_files(directory / "sandbox.json", data), directory)))
    if record is not None:
        hold(record.root_id == record.container_ids["pause"], "it names the root")
        again = canonical(record.as_json())
        hold(finished(read_record(_files(directory / "sandbox.json", again), directory)) == record, "it is read again")


def check_written_assignment(data: bytes) -> None:
    """It is refused, or is one that can be written again."""
    assignment = refused(lambda: finished(read_assignment(_files(_ACTOR.assignment, data), _ACTOR.assignment)))
    if assignment is not None:
        hold(structure(plain(assignment), type(assignment)) == assignment, "it can be written again")


def check_followed(data: bytes) -> None:
    """It tells a generation or nothing."""
    files = _files(_ACTOR.followed, data)
    files.content |= {_STATE.actors: A_DIRECTORY, _ACTOR.root: A_DIRECTORY}
    found = finished(followed_before(files, _STATE, Path("/assignments")))
    hold(all(type(each) is int for each in found.values()), "a generation is a number")


def _files(path: Path, data: bytes) -> MemoryFiles:
    return MemoryFiles({path: data})


def _record_seeds() -> Iterable[tuple[str, bytes]]:
    for first, name in ((b"\0", "sandbox.json"), (b"\1", "assignment.json")):
        yield from ((label, first + data) for label, data in _recorded(name))
    yield "followed.json", b'\2{"v":1,"directory":"/assignments","generation":3}'


# ------------------------------------------------------------------------------------------------------------- volumes

_VOLUMES: Final = ("data", "work")


def check_volumes(data: bytes) -> None:
    """An archive is damaged, or all of it is read, leads nowhere but down, and can be written again as it was."""
    try:
        members = _unpacked(data)
    except DamagedArchiveError as error:
        hold(str(error.strerror).startswith("the archive is damaged"), "what is wrong is told")
        return
    hold({each.name[0] for each, _ in members} == set(_VOLUMES), "it holds just the volumes that it should")
    for each, content in members:
        hold(not set(each.name) & {"", ".", ".."}, "a name leads down")
        hold(len(content) == each.size_bytes, "a file has its content")
        hold(each.kind is MemberKind.REGULAR or not content, "only files have a content")
    again = b"".join(header(each) + content + padding(len(content)) for each, content in members) + END
    hold(_unpacked(again) == members, "what was read can be written again")


def _unpacked(data: bytes) -> list[tuple[Member, bytes]]:
    reader = ArchiveReader(io.BytesIO(data), _VOLUMES)
    return [(member, b"".join(reader.content())) for member in reader.members()]


def _volumes_seeds() -> Iterable[tuple[str, bytes]]:
    top = [(Member(name=(name,), kind=MemberKind.DIRECTORY, mode=0o755), b"") for name in _VOLUMES]
    inside = [
        (Member(name=("work", "a"), kind=MemberKind.DIRECTORY, mode=0o700, mtime_ns=-5_500_000_000), b""),
        (Member(name=("work", "a", "file"), kind=MemberKind.REGULAR, mode=0o644, uid=7, gid=8, size_bytes=5), b"hello"),
        (Member(name=("work", "link"), kind=MemberKind.SYMLINK, mode=0o777, target="/etc/passwd"), b""),
        (Member(name=("work", "more"), kind=MemberKind.HARD_LINK, mode=0o644, target="work/a/file"), b""),
        (Member(name=("work", "pipe"), kind=MemberKind.FIFO, mode=0o600), b""),
        (
            Member(
                name=("work", "x" * 200), kind=MemberKind.REGULAR, mode=0o4755, mtime_ns=1_000_000_001,
                xattrs=(("user.a", b"\0\xff"), ("security.capability", b"x=\n")),
            ),
            b"",
        ),
    ]  # fmt: skip
    for name, members in (("empty.tar", top), ("full.tar", [*top, *inside])):
        yield name, b"".join(header(each) + content + padding(len(content)) for each, content in members) + END


JOURNAL: Final = Target(
    name="journal",
    check=check_journal,
    seeds=_journal_seeds,
    words=(
        "base", "event", "from", "to", "commands", "progress", "step", "mark", "type", "since", "generation", "state",
        "seq", "mono_s", "bootId", "null", "\n", "9223372036854775808", "\\ud800", "1e400",
    ),
    input_bytes_max=12_000,
)  # fmt: skip
MANIFESTS: Final = Target(
    name="manifest", check=check_manifest, seeds=_manifest_seeds, words=_MANIFEST_WORDS, input_bytes_max=16_000
)
RECORD: Final = Target(
    name="record",
    check=check_record,
    seeds=_record_seeds,
    words=(
        "v", "activation", "actor", "bootId", "runsc", "flags", "containers", "pause", "sandbox", "pid", "startTicks",
        "gofers", "belongings", "assignment", "type", "null", "1e400", "9223372036854775808", "\\ud800",
    ),
    input_bytes_max=12_000,
)  # fmt: skip
VOLUMES: Final = Target(
    name="volumes",
    check=check_volumes,
    seeds=_volumes_seeds,
    words=(
        "SCHILY.xattr.user.", "path=", "linkpath=", "size=", "uid=", "gid=", "mtime=", "ustar\x0000", "work/", "data/",
        "../", "11 path=a\n", "0000644\0",
    ),
    input_bytes_max=12_000,
)  # fmt: skip
