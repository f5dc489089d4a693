"""Faults of ports, drawn: which calls they meet, and what happens to them.

What no worker can cope with, and nobody has promised, is not drawn: `TRUSTED` says which lies those are.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sim.faults import BROKEN, DEADLINE, STORE, Cut, Fail, Fault, Halfway, Hang, Kill, Lie, Slow, When
from sim.lies import LIES
from sim.spots import AT_ONCE, BRINGS_NEWS, NEVER_FAIL

if TYPE_CHECKING:
    import random  # noqa: TID251 - the type of what is handed in, seeded
    from collections.abc import Callable, Mapping

    from sim.faults import What

METHODS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        port: tuple(methods.split())
        for port, methods in {
            "cgroups": "delegate make names remove usage",
            "files": "append append_durably digest digest_parts find_in free_bytes list_directory lock lstat "
            "lstat_each make_directory make_links make_tree make_volume measure_volumes read read_from remove_file "
            "remove_tree rename replace replace_for_boot sha256 stat stat_each sync_tree truncate unmount_below "
            "unpack_archive write_archive",
            "gpus": "monitor receive",
            "net": "accept listen_unix receive send",
            "processes": "adopt find find_arguments holds_output is_alive kill_and_wait open_files reclaim run signal "
            "wait",
            "stores": "digest get get_into list put put_part_of remove",
            "wall": "now_s",
            "watch": "changes next",
        }.items()
    }
)
"""The calls that are disturbed."""
_WEIGHTY: Final = frozenset(
    {"run", "replace", "append_durably", "make", "make_tree", "remove_tree", "rename", "put", "receive"}
)
"""Those that are drawn more often: most of what matters goes through them."""
_WEIGHT: Final = 6

TRUSTED: Final = frozenset(
    {
        # A disk that says it has done what it has not.
        "append", "append_durably", "make_directory", "make_links", "make_tree", "make_volume", "remove_file",
        "remove_tree", "rename", "replace", "replace_for_boot", "sync_tree", "truncate", "unmount_below",
        "unpack_archive", "write_archive",
        # Memory in which another byte stands than on the disk: a journal that cannot be read is set aside.
        "read",
        "read_from",
        # Memory that hashes another byte than stands there.
        "digest", "digest_parts", "sha256",
        # A kernel that hides processes, or says that a living one is dead: two sandboxes come of it.
        "find", "find_arguments", "is_alive", "kill_and_wait", "list_directory", "signal",
    }
)  # fmt: skip
"""The methods that are believed: a wrong answer of theirs is met by `sim.sweep` alone, one at a time."""

_PARTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "append": ("written",),
        "append_durably": ("written", "synced"),
        "lock": ("opened", "locked"),
        "make_directory": ("made", "synced"),
        "make_links": ("made", "linked", "synced", "renamed"),
        "make_tree": ("made", "renamed"),
        "make_volume": ("opened to all", "synced"),
        "remove_file": ("removed",),
        "remove_tree": ("removed",),
        "replace": ("created", "written", "synced", "renamed"),
        "replace_for_boot": ("created", "written", "renamed"),
        "rename": ("renamed",),
        "sync_tree": ("file synced", "directory synced"),
        "truncate": ("cut",),
        "unpack_archive": ("made",),
        "write_archive": ("created", "written"),
        "put": ("sent", "stored"),
        "put_part_of": ("sent", "stored"),
        "remove": ("removed",),
    }
)
_FOR_EVER: Final = 0.4
_BOUNDED: Final = frozenset({"run", "kill_and_wait", "monitor", "send", "adopt", *METHODS["stores"], "make"}) - {
    "receive"
}
"""The calls that somebody gives up after a while: they may hang for ever."""
_SPARED: Final[Mapping[str, frozenset[tuple[str, str]]]] = MappingProxyType(
    {"slow": AT_ONCE, "fail": NEVER_FAIL | {("gpus", "receive")}, "kill": frozenset()}
)
"""By what happens: the calls to which it does not, as the real ports do not let it."""
_TIMES: Final = (1, 1, 1, 2, 3, 5, 8)
_NTH: Final = (1, 1, 1, 2, 3, 5, 8, 13)
_RARE: Final = "stores"
"""Whose calls are few, and late: only what is saved is uploaded. A fault waits for an early one, from the beginning."""
_RARE_NTH: Final = (1, 1, 1, 2, 3)


def draw_fault(chance: random.Random, kind: str, *, id_: str, lasts_s: float) -> Fault:
    """A fault of a port of this kind."""
    port, _, word = kind.partition(".")
    methods = [each for each in METHODS[port] if _can(port, each, word)]
    # What hangs is met by the deadline of a command, and without one by that of the whole state.
    weighty = _WEIGHTY | {"adopt"} if word == "hang" else _WEIGHTY
    method = chance.choices(methods, [_WEIGHT if each in weighty else 1 for each in methods])[0]
    from_s = 0.0 if port == _RARE else round(chance.uniform(0.0, lasts_s), 3)
    when = (
        When(port=port, method=method, from_s=from_s, nth=chance.choice(_RARE_NTH if port == _RARE else _NTH))
        if word in {"kill", "half"} or chance.choice((False, True))
        else When(
            port=port,
            method=method,
            from_s=from_s,
            probability=chance.choice((0.1, 0.5, 1.0)),
            times_max=chance.choice(_TIMES),
        )
    )
    return Fault(id=id_, when=when, what=_what(chance, port, method, word))


def _can(port: str, method: str, word: str) -> bool:
    """Whether a call of this kind can meet this."""
    name = (port, method)
    match word:
        case "lie":
            return name in LIES and not (port in {"files", "processes"} and method in TRUSTED)
        case "half":
            return method in _PARTS
        case "cut":
            return method == "run"
        case "hang":
            return name not in AT_ONCE and (method not in BRINGS_NEWS or port == "gpus")
        case _:
            return name not in _SPARED[word]


def _what(chance: random.Random, port: str, method: str, word: str) -> What:
    is_for_ever = method in _BOUNDED and chance.random() < _FOR_EVER
    hang_s, slow_s = round(chance.uniform(1.0, 20.0), 3), round(chance.uniform(0.05, 9.0), 3)
    lies, parts = sorted(LIES.get((port, method), ("",))), _PARTS.get(method, ("",))
    of_word: dict[str, Callable[[], What]] = {
        "fail": lambda: Fail(chance.choice(_errors(port, method))),
        "hang": lambda: Hang(None if is_for_ever else hang_s),
        "slow": lambda: Slow(slow_s),
        "lie": lambda: Lie(chance.choice(lies)),
        "half": lambda: Halfway(
            at=chance.choice(parts), error=chance.choice((None, STORE if port == "stores" else "EIO"))
        ),
        "cut": lambda: Cut(chance.choice((1, 1, 2, 3, 5))),
        "kill": lambda: Kill(after=chance.choice((False, True))),
    }
    return of_word[word]()


def _errors(port: str, method: str) -> tuple[str, ...]:
    match port:
        case "files":
            return ("EIO", "ENOSPC", "EROFS") if method in _CHANGES else ("EIO",)
        case "processes":
            return ("EAGAIN", DEADLINE) if method in {"run", "kill_and_wait"} else ("EMFILE",)
        case "net":
            return (BROKEN,) if method in {"send", "receive"} else ("EMFILE",)
        case "stores":
            return (STORE,)
        case _:
            return ("EIO",)


_CHANGES: Final = frozenset(METHODS["files"]) - {
    "digest", "digest_parts", "find_in", "free_bytes", "list_directory", "lock", "lstat", "lstat_each",
    "measure_volumes", "read", "read_from", "sha256", "stat", "stat_each",
}  # fmt: skip
