"""What of a container's bundle differs from the one in the snapshot: each argument, mount and device by name.

Order does not count, nor does a mount's source. GPUs' own device nodes are the grant's to compare.

Source: facts of runsc, section 4: what a current runsc compares; a measured one compares nothing and keeps the old.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from actors.gpu.granted_edits import GPU_NODE
from statemachine.reasons import Reason

from .difference import ABSENT, Difference, Force, Injected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actors.manifest import Shape, ShapeMount

_WHOLE = Injected(paths=frozenset())


def shape_differences(name: str, then: Shape, now: Shape, injected: Injected | None) -> Iterator[Difference]:
    """Everything that differs between two shapes of a container.

    Args:
        name: the container's.
        then: in the snapshot.
        now: here.
        injected: what it still gets here; None when `now` is whole.
    """
    yield from _arguments(name, then.args, now.args)
    yield from _user(name, then, now, injected)
    yield from _mounts(name, then.mounts, now.mounts, injected or _WHOLE)
    yield from _devices(name, then, now, injected or _WHOLE)
    for each in sorted(set(then.capabilities) ^ set(now.capabilities)):
        had = each in then.capabilities
        yield _changed(f"{name}: capability {each}", "granted" if had else ABSENT, ABSENT if had else "granted")
    yield from _others(name, then, now)


def _arguments(name: str, then: Iterable[str], now: Iterable[str]) -> Iterator[Difference]:
    for index, (was, here) in enumerate(zip_longest(then, now)):
        if was != here:
            yield _changed(f"{name}: argument {index}", _quoted(was), _quoted(here))


def _user(name: str, then: Shape, now: Shape, injected: Injected | None) -> Iterator[Difference]:
    if then.user.uid != now.user.uid:
        yield _changed(f"{name}: user uid", str(then.user.uid), str(now.user.uid))
    if then.user.gid != now.user.gid:
        yield _changed(f"{name}: user gid", str(then.user.gid), str(now.user.gid))
    were, are = set(then.user.additional_gids), set(now.user.additional_gids)
    # A spec may add groups; those of the snapshot are taken then.
    if were != are and (injected is None or not are < were):
        yield _changed(f"{name}: user additionalGids", _numbers(were), _numbers(are))


def _others(name: str, then: Shape, now: Shape) -> Iterator[Difference]:
    if then.others is None or now.others is None:
        return
    were, are = ({each.name: each.value for each in others} for others in (then.others, now.others))
    for member in dict.fromkeys((*were, *are)):
        if were.get(member) != are.get(member):
            yield _changed(f"{name}: {member}", were.get(member, ABSENT), are.get(member, ABSENT))


def _mounts(
    name: str, then: Iterable[ShapeMount], now: Iterable[ShapeMount], injected: Injected
) -> Iterator[Difference]:
    were, are = _by_destination(then), _by_destination(now)
    for path in dict.fromkeys((*were, *are)):
        was, here = were.get(path), are.get(path)
        # What is injected over a mount of the bundle takes its place.
        if was == here or (was is not None and injected.gives(path)):
            continue
        yield _given(name, f"mount {path}", was, here, injected)


def _devices(name: str, then: Shape, now: Shape, injected: Injected) -> Iterator[Difference]:
    were, are = ({each.path: each.type for each in shape.devices if not _is_gpu(each.path)} for shape in (then, now))
    for path in dict.fromkeys((*were, *are)):
        was, here = were.get(path), are.get(path)
        if was != here and not (was is not None and injected.gives(path)):
            yield _given(name, f"device {path}", was, here, injected)


def _is_gpu(path: str) -> bool:
    return bool(GPU_NODE.fullmatch(path))


def _given(name: str, what: str, was: str | None, here: str | None, injected: Injected) -> Difference:
    """Where devices are injected, what is lacking is what today's spec does not give, and nobody can mount it."""
    subject, was, here = f"{name}: {what}", was or ABSENT, here or ABSENT
    if here == ABSENT and injected is not _WHOLE:
        return Difference(subject=subject, was=was, now=here, reason=Reason.MOUNT_MISSING, force=Force.NEVER)
    return _changed(subject, was, here)


def _by_destination(mounts: Iterable[ShapeMount]) -> dict[str, str]:
    """Of each destination, what is mounted there, one over the other, in one form."""
    found: dict[str, list[str]] = {}
    for mount in mounts:
        text = " ".join((mount.type or "untyped", ",".join(sorted(set(mount.options))))).rstrip()
        found.setdefault(mount.destination, []).append(text)
    return {destination: "; ".join(texts) for destination, texts in found.items()}


def _changed(subject: str, was: str, now: str) -> Difference:
    return Difference(subject=subject, was=was, now=now, reason=Reason.BUNDLE_CHANGED)


def _quoted(argument: str | None) -> str:
    return ABSENT if argument is None else repr(argument)


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"
