"""Wrong answers of ports that look right: of each method, the ones that something has to cope with."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from actors.ports import Archived, Exit, Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@attrs.frozen(kw_only=True)
class Untruth:
    """One wrong answer.

    Attributes:
        twist: makes the wrong answer out of the true one; the call has its effect.
        given: what the call is made with instead, out of its arguments by position and by name.
        answer: gives the wrong answer instead of the call, out of its positional arguments; it has no effect.
    """

    twist: Callable[[Any], Any] = lambda result: result
    given: Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]] = lambda args, named: (
        args,
        named,
    )
    answer: Callable[..., Any] | None = None


def _flipped(data: bytes) -> bytes:
    """One bit in the middle is another."""
    middle = len(data) // 2
    return data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :] if data else data


def _other_digit(digest: str) -> str:
    return ("1" if digest[0] == "0" else "0") + digest[1:]


def _ended_with(code: int) -> Callable[[Finished], Finished]:
    return lambda finished: attrs.evolve(finished, exit=Exit(code=code))


def _half_the_data(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    key, data = args
    return (key, data[: len(data) // 2]), named


def _half_the_part(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, {**named, "size_bytes": named["size_bytes"] // 2}


def _nothing(*_args: Any) -> None:
    return None


_READS: Final = {
    "flipped": Untruth(twist=_flipped),
    "empty": Untruth(twist=lambda _: b""),
    "short": Untruth(twist=lambda data: data[: len(data) // 2]),
}
_NOT_DONE: Final = {"notDone": Untruth(answer=_nothing)}
_ABSENT: Final = {
    "absent": Untruth(twist=lambda found: (None,) * len(found)),
    "oneAbsent": Untruth(twist=lambda found: (*found[:-1], None)),
}
_OPPOSITE: Final = {"other": Untruth(twist=lambda answer: not answer)}
_FOUND: Final = {"none": Untruth(twist=lambda _: ())}

LIES: Final[Mapping[tuple[str, str], Mapping[str, Untruth]]] = MappingProxyType(
    {
        ("cgroups", "make"): _NOT_DONE,
        ("cgroups", "remove"): _NOT_DONE,
        ("files", "read"): _READS,
        ("files", "read_from"): _READS,
        ("files", "list_directory"): {"empty": Untruth(twist=lambda _: ())},
        ("files", "find_in"): {"nowhere": Untruth(twist=lambda path: path / "absent")},
        ("files", "stat"): {"absent": Untruth(twist=_nothing)},
        ("files", "lstat"): {"absent": Untruth(twist=_nothing)},
        ("files", "stat_each"): _ABSENT,
        ("files", "lstat_each"): _ABSENT,
        ("files", "digest"): {"other": Untruth(twist=_other_digit)},
        ("files", "digest_parts"): {
            "other": Untruth(twist=lambda digests: attrs.evolve(digests, blake3=_other_digit(digests.blake3)))
        },
        ("files", "sha256"): {"other": Untruth(twist=_other_digit)},
        ("files", "make_volume"): _NOT_DONE,
        ("files", "measure_volumes"): {"none": Untruth(twist=lambda _: 0), "much": Untruth(twist=lambda _: 1 << 50)},
        ("files", "write_archive"): {"notDone": Untruth(answer=lambda *_: Archived(members=1))},
        ("files", "unpack_archive"): _NOT_DONE,
        ("files", "free_bytes"): {
            "none": Untruth(twist=lambda _: 0),
            "plenty": Untruth(twist=lambda _: 1 << 50),
        },
        ("files", "replace"): _NOT_DONE,
        ("files", "replace_for_boot"): _NOT_DONE,
        ("files", "append"): _NOT_DONE,
        ("files", "append_durably"): _NOT_DONE,
        ("files", "truncate"): _NOT_DONE,
        ("files", "make_directory"): _NOT_DONE,
        ("files", "make_links"): _NOT_DONE,
        ("files", "make_tree"): _NOT_DONE,
        ("files", "rename"): _NOT_DONE,
        ("files", "remove_file"): _NOT_DONE,
        ("files", "remove_tree"): _NOT_DONE,
        ("files", "sync_tree"): _NOT_DONE,
        ("files", "unmount_below"): _NOT_DONE,
        ("processes", "run"): {
            "failed": Untruth(twist=_ended_with(128)),
            "succeeded": Untruth(twist=_ended_with(0)),
            "statusLost": Untruth(twist=lambda finished: attrs.evolve(finished, exit=Exit(code=None))),
            "silent": Untruth(twist=lambda finished: attrs.evolve(finished, stdout=b"", stderr=b"")),
            "notDone": Untruth(answer=lambda *_: Finished(exit=Exit(code=0))),
        },
        ("processes", "wait"): {"statusLost": Untruth(twist=lambda _: Exit(code=None))},
        ("processes", "find"): _FOUND,
        ("processes", "find_arguments"): _FOUND,
        ("processes", "is_alive"): _OPPOSITE,
        ("processes", "holds_output"): _OPPOSITE,
        ("processes", "open_files"): _FOUND,
        ("processes", "kill_and_wait"): _NOT_DONE,
        ("processes", "signal"): _NOT_DONE,
        ("watch", "next"): {"everything": Untruth(twist=lambda _: frozenset())},
        ("gpus", "receive"): {
            "ended": Untruth(twist=lambda _: b""),
            "babble": Untruth(twist=lambda _: b"no fact\n"),
            "short": Untruth(twist=lambda data: data[: len(data) // 2]),
        },
        ("stores", "put"): {**_NOT_DONE, "cut": Untruth(given=_half_the_data)},
        ("stores", "put_part_of"): {**_NOT_DONE, "cut": Untruth(given=_half_the_part)},
        ("stores", "get"): _READS,
        ("stores", "get_into"): {"other": Untruth(twist=_other_digit)},
        ("stores", "digest"): {"other": Untruth(twist=_other_digit)},
        ("stores", "list"): {"none": Untruth(twist=lambda _: ())},
        ("stores", "remove"): _NOT_DONE,
        ("wall", "now_s"): {
            "anHourBack": Untruth(twist=lambda now_s: now_s - 3600),
            "anHourOn": Untruth(twist=lambda now_s: now_s + 3600),
            "longAgo": Untruth(twist=lambda _: 0.0),
        },
        ("wall", "boot_id"): {"other": Untruth(twist=_other_digit)},
    }
)
"""By port and method. Where a method is not here, nothing wrong of it looks right."""


def lie_about(name: tuple[str, str], how: str | None) -> Untruth:
    """The lie of this name, or the first.

    Raises:
        ValueError: there is none such.
    """
    lies = LIES.get(name, {})
    chosen = next(iter(lies), None) if how is None else how
    if chosen is None or chosen not in lies:
        raise ValueError(f"{'.'.join(name)} has no lie {how!r}; there are {sorted(lies)}")
    return lies[chosen]
