"""Resource amounts and device claims: the rules of Kubernetes and DESIGN, for every kind of document that has them.

Source: DESIGN, "WorkerAssignment", the table of rules; Kubernetes' validation of `resources`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.reasons import Reason

from .assignment import GPU_RESOURCE, Resources
from .document import RefusedError, ScalarKind, ScalarNode, Spot
from .document.decoding import Field, Origin, Record, given_entries, mapping
from .document.wording import shown
from .quantity import INT64_MAX, InvalidQuantityError, Quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .document import Node
    from .document.nodes import MappingNode

INJECTABLE: Final = frozenset({GPU_RESOURCE})
"""The device classes that can be injected today. The gate lifts per class, here."""
DEVICES_MAX: Final = 1 << 16
"""Pieces of one class in one amount; far above any machine, far below any overflow."""
_RESOURCES_MAX: Final = 64
_DEVICE_CLASS: Final = re.compile(
    r"(?=.{1,253}/)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
_JSON_INTEGER: Final = re.compile(r"-?[0-9]+")
_PLAIN_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_PLAIN_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")


class Measure(enum.Enum):
    """How a resource is counted."""

    PIECES = "pieces"
    MILLI = "milli"
    BYTES = "bytes"


_PLAIN_RESOURCES: Final[Mapping[str, Measure]] = {
    "cpu": Measure.MILLI,
    "memory": Measure.BYTES,
    "ephemeral-storage": Measure.BYTES,
}


_MEASURED: Final[Mapping[Measure, Callable[[Quantity], int | None]]] = {
    Measure.PIECES: Quantity.whole,
    Measure.MILLI: lambda amount: amount.milli_ceil,
    Measure.BYTES: lambda amount: amount.bytes_ceil,
}


@attrs.frozen
class Claim:
    """What one owner (a container, a pool) claims of one device class, above zero; `spot` is where that stands."""

    owner: str
    device_class: str
    count: int
    spot: Spot


@attrs.frozen(kw_only=True)
class ResourceFields:
    """`resources` after decoding: the amounts that are right, by name."""

    limits: Mapping[str, Field[int]] = attrs.field(factory=dict)
    requests: Mapping[str, Field[int]] = attrs.field(factory=dict)
    claims: tuple[Claim, ...] = ()
    """Device limits above zero whose class can be injected, in document order."""

    def build(self) -> Resources:
        """The limits as exact numbers.

        Raises:
            RefusedError: one of them is refused.
        """
        return _exact(self.limits)

    def build_requests(self) -> Resources:
        """The requests as exact numbers.

        Raises:
            RefusedError: one of them is refused.
        """
        return _exact(self.requests)


def _exact(fields: Mapping[str, Field[int]]) -> Resources:
    amounts = {name: field.value for name, field in fields.items()}
    pieces = [(name, count) for name, count in amounts.items() if measure_of(name) is Measure.PIECES]
    return Resources(
        cpu_milli=amounts.get("cpu"),
        memory_bytes=amounts.get("memory"),
        ephemeral_storage_bytes=amounts.get("ephemeral-storage"),
        devices=tuple(sorted((name, count) for name, count in pieces if count)),
    )


def measure_of(name: str) -> Measure | None:
    """How a resource of this name is counted; None for a name that is no resource."""
    if "/" in name:
        return Measure.PIECES if _DEVICE_CLASS.fullmatch(name) else None
    return _PLAIN_RESOURCES.get(name)


def resources(node: Node, spot: Spot, owner: str) -> ResourceFields:
    """Decode `{limits, requests}`, nothing else, of an owner."""
    return resource_fields(Record.closed(node, spot, ("limits", "requests")), owner)


def resource_fields(record: Record, owner: str) -> ResourceFields:
    """Decode `limits` and `requests` of an owner and check each request against its limit."""
    none: dict[str, Field[int]] = {}
    limits = record.optional("limits", lambda part, at: amounts(part, at, owner), none)
    requests = record.optional("requests", lambda part, at: amounts(part, at, owner), none)
    _check_requests(requests.value, limits.value, owner)
    return ResourceFields(limits=limits.value, requests=requests.value, claims=_claims(limits.value, owner))


def amounts(node: Node, spot: Spot, owner: str) -> dict[str, Field[int]]:
    """Decode a mapping of resource names to quantities; each amount is refused on its own."""
    found = mapping(node, spot)
    _check_size(found, spot)
    return {entry.key: _amount_field(entry.value, at, owner) for entry, at in given_entries(found, spot)}


def device_counts(node: Node, spot: Spot, owner: str) -> tuple[tuple[str, int], ...]:
    """Decode a mapping of device classes to whole numbers, such as a reservation; sorted by class."""
    found = mapping(node, spot)
    _check_size(found, spot)
    fields: list[tuple[str, Field[int]]] = []
    for entry, at in given_entries(found, spot):
        if measure_of(entry.key) is not Measure.PIECES:
            message = f"{owner} counts device classes, such as {GPU_RESOURCE}; {shown(entry.key)} is none"
            at.report(Reason.UNKNOWN_RESOURCE, message)
            fields.append((entry.key, Field(at, Origin.REFUSED)))
        else:
            fields.append((entry.key, _amount_field(entry.value, at, owner)))
    return tuple(sorted((name, field.value) for name, field in fields))


def quantity(node: Node, spot: Spot, owner: str) -> Quantity:
    """Decode a quantity of zero or more: a text, or an integer. Floats, booleans and null are InvalidQuantity."""
    if not isinstance(node, ScalarNode):
        spot.refuse_type(node, "a quantity")
    given = f"{owner}: {spot.name} {shown(node.text)}"
    if node.is_nothing:
        spot.refuse(Reason.INVALID_QUANTITY, f"{owner}: {spot.name} is empty; write a quantity, or leave it out")
    if node.kind is ScalarKind.NUMBER and not _JSON_INTEGER.fullmatch(node.text):
        spot.refuse(Reason.INVALID_QUANTITY, f"{given} is not an integer; write such a number in quotes")
    if _is_ambiguous(node):
        spot.refuse(Reason.INVALID_QUANTITY, f"{given} is not a plain integer; write such a number in quotes")
    try:
        amount = parse_quantity(node.text) if node.kind is not ScalarKind.BOOLEAN else None
    except InvalidQuantityError:
        amount = None
    if amount is None:
        spot.refuse(Reason.INVALID_QUANTITY, f"{given} is not a quantity")
    if amount.is_negative:
        spot.refuse(Reason.NEGATIVE_QUANTITY, f"{given} is below zero")
    return amount


def _is_ambiguous(node: ScalarNode) -> bool:
    """Whether YAML readers would take the text for a float or an octal number and so disagree about it."""
    if node.kind is not ScalarKind.PLAIN or not _PLAIN_NUMBER.fullmatch(node.text):
        return False
    return not _PLAIN_INTEGER.fullmatch(node.text)


def _check_size(found: MappingNode, spot: Spot) -> None:
    if len(found.entries) > _RESOURCES_MAX:
        message = f"{spot.name} has {len(found.entries)} entries; {_RESOURCES_MAX} are the most"
        spot.refuse(Reason.INVALID_VALUE, message)


def _amount_field(node: Node, spot: Spot, owner: str) -> Field[int]:
    try:
        return Field(spot, Origin.GIVEN, _amount(node, spot, owner))
    except RefusedError:
        return Field(spot, Origin.REFUSED)


def _amount(node: Node, spot: Spot, owner: str) -> int:
    measure = measure_of(spot.name)
    if measure is None:
        message = f"{owner}: {shown(spot.name)} is neither a device class nor one of {', '.join(_PLAIN_RESOURCES)}"
        spot.refuse(Reason.UNKNOWN_RESOURCE, message)
    amount = quantity(node, spot, owner)
    given = f"{owner}: {spot.name} {shown(node.text)}" if isinstance(node, ScalarNode) else owner
    count = _MEASURED[measure](amount)
    if count is None:
        spot.refuse(Reason.FRACTIONAL_DEVICE, f"{given} is not a whole number of devices")
    most = DEVICES_MAX if measure is Measure.PIECES else INT64_MAX
    if count > most:
        spot.refuse(Reason.INVALID_VALUE, f"{given} is out of range; {most} is the most")
    return count


def _check_requests(requests: Mapping[str, Field[int]], limits: Mapping[str, Field[int]], owner: str) -> None:
    """Report the requests that do not fit; those that are refused already are passed over."""
    for name, request in requests.items():
        misfit = _misfit(name, request.value, limits.get(name), owner) if request.is_usable else None
        if misfit is not None:
            request.spot.report(*misfit)


def _misfit(name: str, request: int, limit: Field[int] | None, owner: str) -> tuple[Reason, str] | None:
    """How a request does not fit its limit; a limit that is refused itself fits everything."""
    is_device = measure_of(name) is Measure.PIECES
    if limit is None:
        message = f"{owner} requests {request} {name} without a limit"
        return (Reason.REQUEST_WITHOUT_LIMIT, message) if is_device else None
    if not limit.is_usable:
        return None
    if is_device and request != limit.value:
        return Reason.REQUEST_NOT_EQUAL_LIMIT, f"{owner} requests {request} {name}, but its limit is {limit.value}"
    if request > limit.value:
        return Reason.INVALID_VALUE, f"{owner} requests more {name} than its limit allows"
    return None


def _claims(limits: Mapping[str, Field[int]], owner: str) -> tuple[Claim, ...]:
    claims = []
    for name, field in limits.items():
        if not field.is_usable or measure_of(name) is not Measure.PIECES or not field.value:
            continue
        if name in INJECTABLE:
            claims.append(Claim(owner, name, field.value, field.spot))
        else:
            message = f"{owner} claims {field.value} {name}; only {', '.join(sorted(INJECTABLE))} can be injected"
            field.spot.report(Reason.UNSUPPORTED_DEVICE_CLASS, message)
    return tuple(claims)


@attrs.frozen
class Overdraft:
    """A class of which the claims together pass what there is. `last` is the claim that goes beyond."""

    last: Claim
    total: int
    available: int
    holders: str


def overdrafts(claims: Iterable[Claim], available: Mapping[str, int]) -> tuple[Overdraft, ...]:
    """Every class of which more is claimed than available; what is not in `available` is not there at all."""
    by_class: dict[str, list[Claim]] = {}
    for claim in claims:
        by_class.setdefault(claim.device_class, []).append(claim)
    found = []
    for device_class, of_class in by_class.items():
        total, limit = sum(claim.count for claim in of_class), available.get(device_class, 0)
        if total > limit:
            found.append(Overdraft(_last_straw(of_class, limit), total, limit, _holders(of_class)))
    return tuple(found)


def _last_straw(claims: list[Claim], limit: int) -> Claim:
    running = 0
    for claim in claims:
        running += claim.count
        if running > limit:
            return claim
    message = "no claim passes the limit"
    raise AssertionError(message)


def _holders(claims: list[Claim]) -> str:
    shares = [f"{claim.owner} {claim.count}" for claim in claims]
    return ", ".join(shares[:8]) + (", …" if len(shares) > 8 else "")  # noqa: PLR2004 - a message, not a report
