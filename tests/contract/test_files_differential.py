"""Files: whatever is done in whatever order, the simulated port answers what the real one answers."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.ports import FileKind, FileStat, NewDirectory, NewFile
from tests.contract.places import Place, RealPlace, SimPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.ports import FileLock, Files

NAMES: Final = st.sampled_from(["a", "b", "c"])
# Mostly below the root, mostly shallow; sometimes the root itself, outside it, or with a name that is too long.
PATHS: Final = st.one_of(
    st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/".join(["root", *names])),
    st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/".join(["root", *names])),
    st.lists(NAMES, min_size=1, max_size=2).map(lambda names: "/".join(["root", *names])),
    st.sampled_from(
        ["root", "outside/a", "root/../outside/a", "root/a/../b", "root/" + "n" * 256, "root/a/" + "n" * 255]
    ),
)
DATA: Final = st.binary(max_size=6)


def tree_of(data: bytes) -> NewDirectory:
    """Some tree: files of different modes, in it and below, with a name that may be too long."""
    files = {f"f{each % 3}": NewFile(data, mode=0o600 + each % 64) for each in data}
    below = {("n" * 255 if each % 5 else "n" * 256): NewFile(b"") for each in data[:1]}
    return NewDirectory({**files, "a": NewDirectory({**files, **below}, mode=0o700 + data.count(0))}, mode=0o755)


async def listed_in(files: Files, root: Path, folder: str) -> tuple[str, ...]:
    return await files.list_directory(await files.find_in(root, folder))


ONE_PATH: Final[dict[str, Callable[[Files, Path], Any]]] = {
    "read": lambda files, path: files.read(path, limit_bytes=4),
    "read_from": lambda files, path: files.read_from(path, offset_bytes=2, limit_bytes=3),
    "make_directory": lambda files, path: files.make_directory(path),
    "list_directory": lambda files, path: files.list_directory(path),
    "stat": lambda files, path: files.stat(path),
    "lstat": lambda files, path: files.lstat(path),
    "list in": lambda files, path: listed_in(files, path.parent, f"/{path.name}/a"),
    "stat_each": lambda files, path: files.stat_each([path.parent, path, path.with_name("a")]),
    "lstat_each": lambda files, path: files.lstat_each([path.with_name("c"), path]),
    "remove_file": lambda files, path: files.remove_file(path),
    "remove_tree": lambda files, path: files.remove_tree(path),
    "sync_tree": lambda files, path: files.sync_tree(path),
    "digest": lambda files, path: files.digest(path),
    "sha256": lambda files, path: files.sha256(path),
    "lock": lambda files, path: files.lock(path),
}
WITH_DATA: Final[dict[str, Callable[[Files, Path, bytes], Any]]] = {
    "replace": lambda files, path, data: files.replace(path, data),
    "replace_for_boot": lambda files, path, data: files.replace_for_boot(path, data),
    "make_links": lambda files, path, data: files.make_links(path, {f"l{each % 3}": f"{each}" for each in data}),
    "make_tree": lambda files, path, data: files.make_tree(path, tree_of(data)),
    "append": lambda files, path, data: files.append(path, data),
    "append_durably": lambda files, path, data: files.append_durably(path, data),
    "truncate": lambda files, path, data: files.truncate(path, size_bytes=len(data)),
}


@attrs.frozen
class Deed:
    """Something that is done through the port, or by somebody else."""

    name: str
    path: str
    other: str = ""
    data: bytes = b""


DEEDS: Final = st.one_of(
    st.builds(Deed, st.sampled_from(sorted(ONE_PATH)), PATHS),
    st.builds(Deed, st.sampled_from(sorted(WITH_DATA)), PATHS, data=DATA),
    st.builds(Deed, st.just("rename"), PATHS, other=PATHS),
    st.builds(Deed, st.just("unlock"), PATHS),
    st.builds(Deed, st.sampled_from(["put_symlink"]), PATHS, other=PATHS),
    st.builds(Deed, st.sampled_from(["put_fifo", "put_socket", "put_file", "put_directory"]), PATHS),
)


@attrs.define
class Stage:
    """A place with the locks that are held there."""

    place: Place
    files: Files
    locks: list[FileLock] = attrs.field(factory=list)

    async def answer(self, deed: Deed) -> object:
        """What comes of it, without what may differ: inodes, times, sizes of directories, where the place is."""
        try:
            found = await self._do(deed, self.place.base / deed.path, self.place.base / deed.other)
        except OSError as error:
            where = str(error.filename).removeprefix(str(self.place.base))
            return type(error).__name__, error.errno, where, error.strerror
        if deed.name == "lock":
            self.locks.append(found)
            return "held"
        if deed.name.endswith("stat_each"):
            return [self._told(each) for each in found]
        return self._told(found)

    def _told(self, found: object) -> object:
        if not isinstance(found, FileStat):
            return found
        size_bytes = 0 if found.kind is FileKind.DIRECTORY else found.size_bytes
        return found.kind, size_bytes, found.mode, found.device

    async def _do(self, deed: Deed, path: Path, other: Path) -> Any:
        if deed.name.startswith("put_"):
            self._put(deed.name, path, other)
        elif deed.name == "unlock":
            if self.locks:
                self.locks.pop().close()
        elif deed.name == "rename":
            await self.files.rename(path, other)
        elif deed.name in WITH_DATA:
            await WITH_DATA[deed.name](self.files, path, deed.data)
        else:
            return await ONE_PATH[deed.name](self.files, path)
        return None

    def _put(self, name: str, path: Path, other: Path) -> None:
        """Put something there, where there is nothing, as somebody outside would."""
        names = self.place.tree()
        relative = path.relative_to(self.place.base)
        above = str(relative.parent)
        if str(relative) in names or ".." in relative.parts or (above != "." and names.get(above, b"") is not None):
            return
        if len(relative.name) > 200 or above not in {"root", "outside", "."}:
            return
        if name == "put_symlink":
            # Relative, so that its length is the same in both places.
            self.place.put_symlink(path, os.path.relpath(other, path.parent))
        else:
            getattr(self.place, name)(path)


async def outcome(place: Place, deeds: list[Deed]) -> tuple[object, ...]:
    """What comes of each deed, and what is there in the end."""
    place.put_directory(place.root)
    place.put_file(place.base / "outside" / "a", b"precious")
    stage = Stage(place, place.files())
    answers = [(deed, await stage.answer(deed)) for deed in deeds]
    for lock in stage.locks:
        lock.close()
    tree = place.tree()
    return answers, tree, {name: place.mode(place.base / name) for name in tree}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=150, deadline=None)
@example(deeds=[Deed("stat_each", "root")])
@given(deeds=st.lists(DEEDS, min_size=4, max_size=16))
def test_any_sequence_of_operations_has_the_same_results(backend: str, deeds: list[Deed]):
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)  # as the simulated one is: what is above a path is looked at, too
        real = anyio.run(outcome, RealPlace(Path(base)), deeds, backend=backend)
    assert anyio.run(outcome, SimPlace.new(), deeds, backend=backend) == real
