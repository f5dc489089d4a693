"""Who gets which GPUs: pure, total, deterministic.

Admission takes a ticket and books a number of GPUs; Partitioning turns it into a grant. The devices that a ticket gets
are the lowest free ones when all tickets before it that still wait are served first: who reaches Partitioning sooner
takes nothing from who was admitted sooner. The containers of an actor take from its devices in the order of their
declaration, so that its devices ascend through them. That is what keeps ordinals over suspend and resume: runsc pairs
the GPUs of a snapshot with those at hand in ascending order, sandbox by sandbox, and so do ordinals.

One GPU has one holder: a pool in which it had two cannot be made.

Source: DESIGN, "Partition"; facts of runsc's nvproxy (minors are remapped in sorted order).
"""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import attrs

from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .inventory import Gpu, Inventory

_HOLDERS_SHOWN: Final = 16


@attrs.frozen
class Claim:
    """What one container asks for."""

    container: str
    count: int = attrs.field(validator=attrs.validators.ge(0))


@attrs.frozen
class Grant:
    """The UUIDs of what one container got; the position of each is its ordinal."""

    container: str
    gpus: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Ticket:
    """An actor's place in the order of admission, and what it booked or holds.

    Attributes:
        number: the order of admission.
        claims: of every container, in the order of declaration, those of zero included.
        grants: of every container, in the same order; None while the GPUs are only booked.
        count: how many GPUs it books or holds.
        held: the UUIDs that it holds.
    """

    number: int
    uid: str
    claims: tuple[Claim, ...]
    grants: tuple[Grant, ...] | None = attrs.field(default=None)

    @grants.validator
    def _as_claimed(self, _attribute: attrs.Attribute[Any], value: tuple[Grant, ...] | None) -> None:
        if value is not None and [(each.container, len(each.gpus)) for each in value] != [
            (each.container, each.count) for each in self.claims
        ]:
            message = f"the grants of {self.uid} are not its claims"
            raise ValueError(message)

    # Asked for at every look at a pool, so each is counted once.
    count: int = attrs.field(init=False, eq=False, repr=False)
    held: tuple[str, ...] = attrs.field(init=False, eq=False, repr=False)

    @count.default
    def _count(self) -> int:
        return sum(claim.count for claim in self.claims)

    @held.default
    def _held(self) -> tuple[str, ...]:
        return tuple(uuid for grant in self.grants or () for uuid in grant.gpus)


@attrs.frozen(kw_only=True)
class Holder:
    """Who holds a GPU, and as which of its GPUs the container knows it."""

    uid: str
    container: str
    ordinal: int


@attrs.frozen(kw_only=True)
class Loss:
    """A GPU that somebody holds and that is lost; its path is its UUID where it has no place any more."""

    uuid: str
    path: str
    why: str


def _by_number(tickets: Iterable[Ticket]) -> tuple[Ticket, ...]:
    return tuple(sorted(tickets, key=attrgetter("number")))


def _check_distinct(_instance: object, _attribute: attrs.Attribute[Any], value: tuple[Ticket, ...]) -> None:
    held = [uuid for ticket in value for uuid in ticket.held]
    for what, names in (
        ("actor", [ticket.uid for ticket in value]),
        ("ticket", [ticket.number for ticket in value]),
        ("holder of a GPU", held),
    ):
        if len(set(names)) != len(names):
            message = f"one {what} stands twice in a pool"
            raise ValueError(message)


@attrs.frozen
class Pool:
    """All tickets, in the order of admission; an actor without claims has none."""

    tickets: tuple[Ticket, ...] = attrs.field(default=(), converter=_by_number, validator=_check_distinct)

    def ticket(self, uid: str) -> Ticket | None:
        """The ticket of an actor."""
        return next((ticket for ticket in self.tickets if ticket.uid == uid), None)

    @property
    def holders(self) -> Mapping[str, Holder]:
        """Who holds each GPU that is held, by its UUID."""
        return {
            uuid: Holder(uid=ticket.uid, container=grant.container, ordinal=ordinal)
            for ticket in self.tickets
            for grant in ticket.grants or ()
            for ordinal, uuid in enumerate(grant.gpus)
        }

    def holder_of(self, uuid: str) -> str | None:
        """Which actor holds a GPU."""
        holder = self.holders.get(uuid)
        return holder.uid if holder is not None else None


def admit(pool: Pool, inventory: Inventory, uid: str, claims: Iterable[Claim]) -> Pool:
    """The pool after an actor was admitted with its claims; unchanged when it has that ticket, or claims nothing.

    An actor that was suspended has given its GPUs back; to resume it is to be admitted again, behind all who wait.

    Raises:
        ProblemError: GpuNotDetected, MigUnsupported, InsufficientGpus; of the step admission.
        ValueError: the actor has a ticket for other claims.
    """
    wanted = tuple(claims)
    count = sum(claim.count for claim in wanted)
    existing = pool.ticket(uid)
    if existing is not None and existing.claims != wanted:
        message = f"{uid} has a ticket for other claims"
        raise ValueError(message)
    if existing is not None or count == 0:
        return pool
    free = len(_free(pool, inventory)) - sum(ticket.count for ticket in _waiting(pool))
    if count > free:
        raise ProblemError(_refusal(pool, inventory, count, max(free, 0), Step.ADMISSION))
    number = 1 + max((ticket.number for ticket in pool.tickets), default=0)
    return Pool((*pool.tickets, Ticket(number=number, uid=uid, claims=wanted)))


def grant(pool: Pool, inventory: Inventory, uid: str) -> Pool:
    """The pool after an actor's booking became a grant; unchanged when it holds one that is whole.

    Raises:
        ProblemError: GpuLost when a GPU that it holds is lost; InsufficientGpus, GpuNotDetected or MigUnsupported when
            GPUs were lost since it booked, so that those who were admitted before it get the last ones.
        KeyError: the actor has no ticket.
    """
    ticket = pool.ticket(uid)
    if ticket is None:
        raise KeyError(uid)
    if ticket.grants is not None:
        _require_healthy(ticket, inventory)
        return pool
    before = sum(each.count for each in _waiting(pool) if each.number < ticket.number)
    due = _free(pool, inventory)[before : before + ticket.count]
    if len(due) < ticket.count:
        raise ProblemError(_refusal(pool, inventory, ticket.count, len(due), Step.PARTITION, asking=uid))
    granted = attrs.evolve(ticket, grants=_dealt(ticket.claims, due))
    return Pool(granted if each is ticket else each for each in pool.tickets)


def release(pool: Pool, uid: str) -> Pool:
    """The pool after an actor gave back what it booked or holds; it may have had nothing."""
    return Pool(ticket for ticket in pool.tickets if ticket.uid != uid)


def hand_over(pool: Pool, uid: str, to: str) -> Pool:
    """The pool after somebody else has the place and the GPUs of an actor; it may have had nothing."""
    return Pool(attrs.evolve(each, uid=to) if each.uid == uid else each for each in pool.tickets)


def lost_grants(pool: Pool, inventory: Inventory) -> Mapping[str, tuple[Loss, ...]]:
    """What each actor holds that is lost, by its uid; of all GPUs that were ever seen, with or without a node."""
    found = {ticket.uid: tuple(_losses(ticket, inventory)) for ticket in pool.tickets}
    return {uid: losses for uid, losses in found.items() if losses}


def _losses(ticket: Ticket, inventory: Inventory) -> Iterator[Loss]:
    for uuid in ticket.held:
        gpu = inventory.gpu(uuid)
        if gpu is None:
            # One that is only unseen is still known, as lost.
            yield Loss(uuid=uuid, path=uuid, why="another board stands in its place")
        elif gpu.lost is not None:
            yield Loss(uuid=uuid, path=gpu.path, why=gpu.lost)


def _free(pool: Pool, inventory: Inventory) -> list[Gpu]:
    """The GPUs that nobody holds and anybody could work with, by minor; some may be booked."""
    held = {uuid for ticket in pool.tickets for uuid in ticket.held}
    return [gpu for gpu in inventory.grantable if gpu.uuid not in held]


def _waiting(pool: Pool) -> Iterator[Ticket]:
    return (ticket for ticket in pool.tickets if ticket.grants is None)


def _dealt(claims: tuple[Claim, ...], gpus: Iterable[Gpu]) -> tuple[Grant, ...]:
    rest = (gpu.uuid for gpu in gpus)
    return tuple(Grant(claim.container, tuple(islice(rest, claim.count))) for claim in claims)


def _require_healthy(ticket: Ticket, inventory: Inventory) -> None:
    for uuid in ticket.held:
        gpu = inventory.gpu(uuid)
        if gpu is None or not gpu.is_usable:
            why = "not there" if gpu is None else gpu.lost or "in MIG mode now"
            message = f"{uuid}, which {ticket.uid} holds, is lost: {why}"
            raise ProblemError(
                Problem(step=Step.PARTITION, reason=Reason.GPU_LOST, subject=gpu.path if gpu else uuid, message=message)
            )


# ----------------------------------------------------------------------------------------------------------- refusals


def _refusal(pool: Pool, inventory: Inventory, count: int, free: int, step: Step, *, asking: str = "") -> Problem:
    """Why so many cannot be had; whoever asks is no holder in it."""
    others = [ticket for ticket in pool.tickets if ticket.uid != asking]
    usable, mig = len(inventory.usable), [gpu for gpu in inventory.gpus if gpu.mig_devices is not None]
    if not inventory.gpus:
        reason, rest = Reason.GPU_NOT_DETECTED, "this pod has no GPU"
    elif usable < count <= usable + len(mig):
        reason, rest = Reason.MIG_UNSUPPORTED, f"MIG is on for {', '.join(gpu.path for gpu in mig)}"
    else:
        reason = Reason.INSUFFICIENT_GPUS
        told = "; ".join((*_holders(others), *_lost(inventory)))
        rest = f"{free} of {len(inventory.gpus)} can be had" + (f": {told}" if told else "")
    return Problem(step=step, reason=reason, subject="nvidia.com/gpu", message=f"{count} claimed, but {rest}")


def _holders(tickets: list[Ticket]) -> Iterator[str]:
    for ticket in tickets[:_HOLDERS_SHOWN]:
        yield f"{ticket.uid} {'has booked' if ticket.grants is None else 'holds'} {ticket.count}"
    if len(tickets) > _HOLDERS_SHOWN:
        yield f"{len(tickets) - _HOLDERS_SHOWN} more actors hold some"


def _lost(inventory: Inventory) -> Iterator[str]:
    for gpu in inventory.gpus:
        if gpu.lost is not None:
            yield f"{gpu.path} is lost ({gpu.lost})"
        elif gpu.uuid in inventory.withheld:
            yield f"{gpu.path} is withheld ({inventory.withheld[gpu.uuid]})"
