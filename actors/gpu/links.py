"""The private directory of driver libraries: one link for each name that a program may ask the dynamic linker for.

The libraries of the driver are mounted under their full names (`libcuda.so.570.133.20`), and programs ask for SONAMEs
(`libcuda.so.1`) and for what compilers link with (`libcuda.so`). The links for those would belong beside the libraries,
in a rootfs that is not ours to write to; so they stand in a directory of our own, which is mounted read-only and comes
first in LD_LIBRARY_PATH. It has each library's full name too: then it is the only folder that has to be there, and an
image's own folders keep their place before its `/usr/lib`.

All links are absolute and lead to the mounted file itself, through no other link.

Source: DESIGN, rule 9; ld.so(8).
"""

from __future__ import annotations

import posixpath
import re
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
from blake3 import blake3

from actors.strict_json import canonical
from statemachine.wording import one_line

from .elf import SONAME_BYTES_MAX, ElfError, read_soname
from .hooks import Skipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.cdi import Mount
    from actors.ports import Files

    from .hooks import LinkRequest

PRIVATE_DIRECTORY: Final = "/run/greenroom/lib"
"""Where the links stand in a container."""
LIBRARIES_MAX: Final = 1024
_LIBRARY: Final = re.compile(r".+\.so(\.[0-9A-Za-z_.+-]+)?")


@attrs.frozen(kw_only=True)
class Library:
    """A library that is mounted: its absolute path in the container, and its SONAME."""

    path: str
    soname: str | None


@attrs.frozen
class Link:
    """A link in the private directory: its name, and the mounted file's absolute path in the container."""

    name: str
    target: str


@attrs.frozen(kw_only=True)
class LinkPlan:
    """The content of the private directory, by name, and what is not in it."""

    links: tuple[Link, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @cached_property
    def targets(self) -> Mapping[str, str]:
        """Where each link leads, by its name."""
        return {link.name: link.target for link in self.links}

    @cached_property
    def digest(self) -> str:
        """BLAKE3 of names and targets, 64 hex digits."""
        return blake3(canonical(self.targets)).hexdigest()


def is_library(mount: Mount) -> bool:
    """Whether a mount brings a shared library, judged by its name in the container."""
    return mount.container_path.startswith("/") and bool(_LIBRARY.fullmatch(posixpath.basename(mount.container_path)))


async def read_libraries(files: Files, mounts: Iterable[Mount]) -> tuple[tuple[Library, ...], tuple[Skipped, ...]]:
    """The libraries among mounts, with their SONAMEs, and those that cannot be read.

    Their files are read once for each spec: no activation does it.
    """
    found: dict[str, Library] = {}
    skipped: list[Skipped] = []
    for mount in filter(is_library, mounts):
        path = posixpath.normpath(mount.container_path)
        if len(found) + len(skipped) >= LIBRARIES_MAX:
            skipped.append(Skipped(name="libraries", why=f"there are more than {LIBRARIES_MAX}"))
            break
        try:
            found[path] = Library(path=path, soname=await read_soname(files, Path(mount.host_path)))
        except ElfError as error:
            skipped.append(Skipped(name=mount.host_path, why=str(error)))
        except OSError as error:
            skipped.append(Skipped(name=mount.host_path, why=f"it cannot be read: {error.strerror or error}"))
    return tuple(found.values()), tuple(skipped)


def plan_links(libraries: Iterable[Library], requests: Iterable[LinkRequest] = ()) -> LinkPlan:
    """The links for libraries under their own names and SONAMEs, and for what hooks ask.

    Of two that want one name the first gets it: full names before SONAMEs, and both before hooks, which only repeat
    what somebody else once read.
    """
    there, asked = tuple(libraries), tuple(requests)
    links: dict[str, str] = {}
    skipped: list[Skipped] = []

    def add(name: str, target: str) -> None:
        if not is_file_name(name):
            skipped.append(Skipped(name=one_line(name, SONAME_BYTES_MAX), why=f"no file name, of {target}"))
        elif links.setdefault(name, target) != target:
            skipped.append(Skipped(name=name, why=f"leads to {links[name]} already, not to {target}"))

    for library in there:
        add(posixpath.basename(library.path), library.path)
    for library in there:
        if library.soname is not None:
            add(library.soname, library.path)
    steps = _steps(there, asked)
    for request in asked:
        end = _end(request, steps, frozenset(library.path for library in there))
        if end is None:
            skipped.append(Skipped(name=request.path, why=f"{request.target} leads to no library of the driver"))
        else:
            add(posixpath.basename(request.path), end)
    made = sorted((Link(name, target) for name, target in links.items()), key=attrgetter("name"))
    return LinkPlan(links=tuple(made), skipped=tuple(dict.fromkeys(skipped)))


def is_file_name(name: str) -> bool:
    """Whether a name can be that of a link in the private directory, and of nothing outside it."""
    return (
        name not in {"", ".", ".."}
        and "/" not in name
        and name.isprintable()
        and len(name.encode("utf-8", "replace")) <= SONAME_BYTES_MAX
    )


def _steps(libraries: Iterable[Library], requests: Iterable[LinkRequest]) -> Mapping[str, str]:
    """From each link's path, as if all stood beside the libraries, to where it leads."""
    steps = {posixpath.normpath(each.path): _joined(each.path, each.target) for each in requests}
    for library in libraries:
        if library.soname is not None and is_file_name(library.soname):
            # ldconfig would make this one, and hooks rely on it.
            steps[_joined(library.path, library.soname)] = library.path
    return steps


def _end(request: LinkRequest, steps: Mapping[str, str], libraries: frozenset[str]) -> str | None:
    """The library at the end of a chain of links; None when there is none, or the chain is a ring."""
    at, met = _joined(request.path, request.target), set[str]()
    while at not in libraries:
        if at in met or at not in steps:
            return None
        met.add(at)
        at = steps[at]
    return at


def _joined(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
