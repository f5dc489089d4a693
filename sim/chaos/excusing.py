"""What must not be held against a worker, after a fault that nobody can cope with: `sim.promises` has the list.

And for how long a call that was made slow is still under way, during which nothing rests, whatever the states say.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from actors.cgroups import activation_in
from actors.snapshots import REMOVED_NAME
from actors.steps.watch import ASK_AGAIN_MAX_S, ASK_S
from sim.chaos.kinds import word
from sim.faults import Fail, Halfway, Hang, Lie, Slow
from sim.invariants.violation import Violation
from sim.promises import is_excused
from sim.spots import Kind, Spot
from supervisor.cgroups import Mode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.chaos.losses import Loss
    from sim.chaos.story import Story
    from sim.faults import What
    from sim.hearing import Said
    from sim.world.calls import Call
    from sim.world.world import World

_LATE: Final = "DeadlinesKept"
_UNSWEPT: Final = "CgroupsHoldTheirActors"
"""A cgroup that a start could not remove is told in its log, and found by the next start."""
_UNWRITTEN: Final = frozenset(
    {
        "StatusTellsTheTruth",
        "StateFilesParse",
        "OneSandbox",
        "DeadlinesKept",
        "WishesAreFollowed",
        "GpusHaveOneHolder",  # of which status.json tells, too; who has whose node is looked at by `GpuHasOneHolderNow`
    }
)
"""Until the next change, or the next supervisor, files say less of what could not be written, and of whom nobody could
read."""
_FORGOTTEN: Final = frozenset({"NobodyIsLost"})  # why who has failed is never forgotten: `FailuresSayWhy`
"""A line of a journal that was never written cannot be read by the next supervisor; a cold life begins with nothing."""
_STORED: Final = "StoredIsThere"
"""An object that has lost its end in its store is what nobody has done."""
FOR_EVER_S: Final = 1e6
_STIRRING: Final = frozenset({"deny-devices", "kill-monitor", "upgrade-driver"})
"""While these happen nobody hears of GPUs."""
_OF_ACTOR: Final = re.compile(r"/actors/([^/]+)")
_EXCHANGED: Final = frozenset({"swap-toolkit", "upgrade-driver"})
_REMOVING: Final = frozenset({"remove", "remove_tree", "remove_file"})
SPEC_S: Final = 12.0
"""So long whoever has asked for a spec may still be on his way with it: the steps from Generating on."""
AFTER_S: Final = 0.5
"""What comes after a call that was slow."""


class Excused:
    """The faults of one run, and what they excuse."""

    def __init__(self, world: World, story: Story) -> None:
        self._world, self._story = world, story

    def excuses(self, name: str, subject: str) -> bool:
        """Whether a violation of this name, by this actor or file, is one that a fault which has fired must have."""
        if self._is_told(name, subject):
            return True
        violation = Violation(name=name, subject=subject, message="")
        for call, what in self._met():
            if not _concerns(call, subject):
                continue
            if name == _LATE and call.port == "files" and isinstance(what, Hang | Slow):
                return True
            if is_excused(_spot(call, what), violation, after=self._is_outlived(call)):
                return True
        return False

    def _is_told(self, name: str, subject: str) -> bool:
        """Whether the worker has said that it could not do better, or nobody could."""
        if name == _UNSWEPT:
            return self._is_unswept(subject)
        if name in _UNWRITTEN and (self._was_full(subject) or self._is_unusable(subject)):
            return True
        if name in _FORGOTTEN:
            return subject in self._story.cold or self._is_unwritten(subject, since=1)
        return name == _STORED and subject in self._story.cut_objects

    def known_losses(self) -> tuple[Loss, ...]:
        """The losses of GPUs of which the newest worker must know: none where its monitor has been disturbed."""
        number = self._world.worker.number
        disturbed = any(call.port == "gpus" for call, _ in self._met()) or any(
            kind in _STIRRING for _, kind in self._story.fired
        )
        return () if disturbed else tuple(each for each in self._story.losses if each.is_known_to(number))

    def is_spec_new(self) -> bool:
        """Whether what a spec is made from was exchanged a moment ago, or what tells of that has been disturbed."""
        now_s, number = self._world.now_s(), self._world.worker.number
        return any(kind in _EXCHANGED and now_s - at_s < SPEC_S for at_s, kind in self._story.fired) or any(
            call.incarnation == number and call.at_s > now_s - SPEC_S and call.port in {"gpus", "watch", "files"}
            for call, _ in self._met()
        )

    def busy_until_s(self) -> float:
        """When the last call is through that a fault has delayed."""
        return max((until_s for until_s, _what in self._delayed()), default=0.0)

    def slow_until_s(self) -> float:
        """When the last call of the newest worker is through that does not hang; who asked in vain has asked again."""
        return max((until_s for until_s, what in self._delayed() if not isinstance(what, Hang)), default=0.0)

    def _delayed(self) -> Iterator[tuple[float, What | None]]:
        """When what was delayed is through. For an exit code, which has a deadline, it is asked anew after a pause."""
        for call, what in self._met():
            if call.incarnation != self._world.worker.number:
                continue
            delay_s = _delay_s(what) if isinstance(what, Hang | Slow) else 0.0
            if call.method == "run" and " wait " in call.argument:
                yield call.at_s + min(delay_s, ASK_S) + ASK_AGAIN_MAX_S + AFTER_S, None
            elif delay_s:
                yield call.at_s + delay_s + AFTER_S, what

    def is_unswept(self) -> bool:
        """Whether the newest worker has said that its start could not remove something."""
        return any(said.event == "unswept" for said in self._said_now())

    def _is_unswept(self, subject: str) -> bool:
        """Whether it has said so of this cgroup, of its activation, or of all: those it could not list, or not have."""
        names = {subject, activation_in(subject), "cgroups", str(self._world.state.sandboxes)}
        return any(
            (said.event == "unswept" and said.fields["subject"] in names)
            or (said.event == "cgroups" and said.fields["mode"] == Mode.OFF)
            for said in self._said_now()
        )

    def has_unended(self) -> bool:
        """Whether there are activations that the newest worker goes on trying to end, as nobody knows of them."""
        said = list(self._said_now())
        to_end = {name for each in said if each.event == "cleanup" for name in each.fields.get("activations", ())}
        return bool(to_end - {each.fields["activation"] for each in said if each.event == "ended"})

    def has_kept(self) -> bool:
        """Whether the newest worker was kept from removing something: the step that comes next removes it."""
        number = self._world.worker.number
        return self._story.full_in == number or any(
            call.incarnation == number and _removes(call) and not isinstance(what, Slow | Hang)
            for call, what in self._met()
        )

    def _was_full(self, subject: str) -> bool:
        """Whether the newest worker has met a full disk, or could not write down what has happened to a subject."""
        number = self._world.worker.number
        return self._story.full_in == number or self._is_unwritten(subject, since=number)

    def _is_unusable(self, subject: str) -> bool:
        """Whether the newest worker has said that it could not read who this is: it goes on without it."""
        return any(said.event == "unusable" and said.fields.get("subject") == subject for said in self._said_now())

    def is_unwritten(self, uid: str) -> bool:
        """Whether any worker has said that a file of this actor is not written."""
        return self._is_unwritten(uid, since=1)

    def _is_unwritten(self, subject: str, *, since: int) -> bool:
        """Whether a worker from this one on has said that a file of this actor is not written."""
        return any(
            said.event == "unwritten" and said.incarnation >= since and _whose(said) in PurePosixPath(subject).parts
            for said in self._world.hearing.said
        )

    def is_disk_full(self) -> bool:
        """Whether there is hardly any room: then files say what they last could."""
        volume = self._world.disk.find(self._world.settings.state_dir).volume
        return volume.capacity_bytes != self._world.machine.capacity_bytes

    def _is_outlived(self, call: Call) -> bool:
        return call.incarnation < self._world.worker.number

    def _said_now(self) -> Iterator[Said]:
        """What the newest worker has said."""
        number = self._world.worker.number
        return (said for said in self._world.hearing.said if said.incarnation == number)

    def _met(self) -> Iterator[tuple[Call, What]]:
        for each in (*self._story.planted, *self._world.plan.planted):
            for number in each.fired:
                yield self._world.ledger.calls[number - 1], each.fault.what


def _removes(call: Call) -> bool:
    """Whether a call removes something: of a snapshot that goes, the manifest is the first that is put aside."""
    return call.method in _REMOVING or (call.method == "rename" and call.argument.endswith(f"/{REMOVED_NAME}"))


def _owner(path: str) -> str | None:
    """Whose directory a path is in or below; None where that cannot be told from it."""
    found = _OF_ACTOR.search(path)
    return None if found is None else found[1]


def _whose(said: Said) -> str | None:
    """Whose file is not written: an actor's own words name it, those of a start the file."""
    actor: str | None = said.fields.get("actor")
    return actor if actor is not None else _owner(said.fields.get("file", ""))


def _concerns(call: Call, subject: str) -> bool:
    """Whether a call can have to do with an actor or file, as far as its argument tells."""
    if call.port == "cgroups":
        return subject in call.argument or call.argument in subject
    owner = _owner(call.argument)
    return owner is None or owner in PurePosixPath(subject).parts


def _delay_s(what: Hang | Slow) -> float:
    if isinstance(what, Slow):
        return what.seconds
    return FOR_EVER_S if what.for_s is None else what.for_s


def _spot(call: Call, what: What) -> Spot:
    match what:
        case Lie(how):
            kind, name = Kind.LIE, f"lie:{how}"
        case Fail(error):
            kind, name = Kind.FAIL, f"fail:{error}"
        case Halfway(at, error):
            kind, name = Kind.HALF, f"half:{at}:{error or 'kill'}"
        case _:
            kind, name = Kind.SLOW, word(what)
    return Spot(
        number=call.number,
        port=call.port,
        method=call.method,
        argument=call.argument,
        op="",
        state=None,
        kind=kind,
        what=what,
        fault=name,
    )
