"""What of a CDI spec's hooks Greenroom does itself, as a plan; the rest is skipped, each with a reason to log.

Hooks of a spec would run in runsc's gofer, with few rights, with the host's files at hand, and would write into the
rootfs that Greenroom was given. Two of them matter to compute work, and both come to the same without a process:

    create-symlinks      links, which become links in the private directory (`links`)
    enable-cuda-compat   the image's own libcuda before the driver's, when it is newer: one more library folder

Both spellings of a command are known: `nvidia-cdi-hook create-symlinks …` and `nvidia-ctk hook create-symlinks …`.

Source: NVIDIA container toolkit 1.12 to 1.20, `nvidia-cdi-hook --help`; facts of nvidia-ctk, "Hooks".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.cdi import Hook

EMULATED: Final = ("create-symlinks", "enable-cuda-compat")
DEFAULT_COMPAT_FOLDER: Final = "/usr/local/cuda/compat"
_STAGE: Final = "createContainer"
_COMPAT_LIBRARY: Final = re.compile(r"libcuda\.so\.(\d{1,6})\.\d[\d.]*", re.ASCII)
_VERSION: Final = re.compile(r"(\d{1,6})\.\d[\d.]*", re.ASCII)
_COMPAT_OPTIONS: Final = {
    "--host-driver-version": "host_driver",
    "--host-cuda-version": "",  # it is for a decision by the library's own note, of 1.20 only
    "--cuda-compat-container-root": "folder",
}
_WORD_CHARACTERS_MAX: Final = 200


@attrs.frozen
class LinkRequest:
    """A link that a hook would make: `ln -s target path`, with an absolute path in the container."""

    target: str
    path: str


@attrs.frozen(kw_only=True)
class CudaCompat:
    """What enable-cuda-compat would do, but for the look into the image: the host's driver and the image's folder."""

    host_driver: str = ""
    folder: str = DEFAULT_COMPAT_FOLDER

    def folder_for(self, names: Iterable[str]) -> str | None:
        """The folder that goes first, given the names in it; None when the driver's libcuda is to be used.

        The image's must be the only one of its kind and of a higher major version than the host's driver.
        """
        host = _VERSION.fullmatch(self.host_driver)
        candidates = [found for found in map(_COMPAT_LIBRARY.fullmatch, sorted(set(names))) if found]
        if host is None or len(candidates) != 1:
            return None
        return self.folder if int(candidates[0][1]) > int(host[1]) else None


@attrs.frozen(kw_only=True)
class Skipped:
    """Something of a spec that is not done, and why."""

    name: str
    why: str


@attrs.frozen(kw_only=True)
class HookPlan:
    """What becomes of a spec's hooks, each part in the order of the spec and each thing once."""

    links: tuple[LinkRequest, ...] = ()
    cuda_compat: CudaCompat | None = None
    skipped: tuple[Skipped, ...] = ()


def plan_hooks(hooks: Iterable[Hook]) -> HookPlan:
    """What becomes of these hooks; nothing of them is refused, what cannot be understood is skipped."""
    links: list[LinkRequest] = []
    compat: CudaCompat | None = None
    skipped: list[Skipped] = []
    for hook in dict.fromkeys(hooks):
        name, args = _command(hook)
        why = _why_not(hook, name)
        if why:
            skipped.append(Skipped(name=name, why=why))
        elif name == EMULATED[0]:
            asked, odd = _links(args)
            links += asked
            skipped += [Skipped(name=name, why=each) for each in odd]
        else:
            found = _compat(args)
            skipped += [Skipped(name=name, why=found)] if isinstance(found, str) else []
            compat = compat or (None if isinstance(found, str) else found)
    return HookPlan(links=tuple(dict.fromkeys(links)), cuda_compat=compat, skipped=tuple(dict.fromkeys(skipped)))


def is_emulated(hook: Hook) -> bool:
    """Whether a hook is one that Greenroom knows and does itself."""
    return not _why_not(hook, _command(hook)[0])


def _command(hook: Hook) -> tuple[str, tuple[str, ...]]:
    """The subcommand and what follows it; where there is none, words that are no subcommand's name."""
    args = hook.args[1:]
    if args[:1] == ("hook",):
        args = args[1:]
    name = args[0] if args else f"{hook.path} without a command"
    return one_line(name, _WORD_CHARACTERS_MAX), args[1:]


def _why_not(hook: Hook, name: str) -> str:
    if hook.hook_name != _STAGE:
        return f"it is a {one_line(hook.hook_name, _WORD_CHARACTERS_MAX)} hook; only {_STAGE} hooks are known"
    return "" if name in EMULATED else f"only {' and '.join(EMULATED)} are known"


def _links(args: tuple[str, ...]) -> tuple[list[LinkRequest], list[str]]:
    asked: list[LinkRequest] = []
    odd: list[str] = []
    for option, value in _options(args):
        if option != "--link":
            odd.append(f"unknown option {option}")
            continue
        target, separator, path = value.partition("::")
        if not separator or "::" in path or not _is_plain(target) or not _is_plain(path):
            odd.append(f"no link: {one_line(value, _WORD_CHARACTERS_MAX)}")
        elif not path.startswith("/") or ".." in path.split("/"):
            odd.append(f"the link is no absolute path without ..: {one_line(path, _WORD_CHARACTERS_MAX)}")
        else:
            asked.append(LinkRequest(target=target, path=path))
    return asked, odd


def _compat(args: tuple[str, ...]) -> CudaCompat | str:
    given: dict[str, str] = {}
    for option, value in _options(args):
        field = _COMPAT_OPTIONS.get(option)
        if field is None:
            return f"unknown option {option}"
        if field:
            given[field] = value
    folder = given.get("folder", DEFAULT_COMPAT_FOLDER)
    if not folder.startswith("/") or ".." in folder.split("/") or set(folder) & {":", "\0"}:
        return f"no folder in the container: {one_line(folder, _WORD_CHARACTERS_MAX)}"
    return CudaCompat(**_present(given))


def _present(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if value}


def _options(args: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    """`--name=value` and `--name value` alike; what is left over has no value."""
    rest = iter(args)
    for word in rest:
        name, separator, value = word.partition("=")
        yield one_line(name, _WORD_CHARACTERS_MAX), value if separator else next(rest, "")


def _is_plain(text: str) -> bool:
    return bool(text) and text.isprintable()
