"""From nodes to typed values: where a decoder stands, how it refuses, and how a mapping's fields are taken out.

A decoder is a function of a node and a spot. It returns the value, or reports to the spot and raises `RefusedError`, or
raises `UnsetError` where the node stands for "nothing was given". A `Record` catches both, so that every field of a
mapping is looked at and all problems are reported, and hands out `Field`s whose `value` raises once more: building the
record's object then fails exactly when one of its fields did.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Generic, NoReturn, Protocol, TypeVar

import attrs

from statemachine.reasons import Reason

from .findings import Findings
from .nodes import Entry, MappingNode, Node, Place, ScalarNode, described
from .wording import document_path, listed, nearest, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")


class RefusedError(Exception):
    """Raised by a decoder that has reported why it gives no value."""


class UnsetError(Exception):
    """Raised by a decoder when the node is null: Kubernetes takes that for an absent field, and so do we."""


class Decoder(Protocol[T_co]):
    """Gives a node its type."""

    def __call__(self, node: Node, spot: Spot, /) -> T_co:
        """The value.

        Raises:
            RefusedError: the problems are reported.
            UnsetError: the node is null.
        """
        ...


@attrs.frozen
class Spot:
    """Where in the document a decoder stands, and whom it reports to."""

    findings: Findings
    place: Place
    segment: str | int = ""
    parent: Spot | None = None

    def child(self, segment: str | int, place: Place) -> Spot:
        """The spot of a field or an item of this one."""
        return Spot(self.findings, place, segment, self)

    @property
    def path(self) -> str:
        """The document path, as `spec.containers[1].name`."""
        segments: list[str | int] = []
        spot: Spot | None = self
        while spot is not None and spot.parent is not None:
            segments.append(spot.segment)
            spot = spot.parent
        return document_path(reversed(segments))

    @property
    def name(self) -> str:
        """What a message calls it: the last part of the path."""
        return str(self.segment) if isinstance(self.segment, str) and self.segment else self.path

    def report(self, reason: Reason, message: str) -> None:
        """Report a problem here and go on."""
        self.findings.add(self.place, reason, subject=self.path, message=message)

    def refuse(self, reason: Reason, message: str) -> NoReturn:
        """Report a problem here and give up on the value.

        Raises:
            RefusedError: always.
        """
        self.report(reason, message)
        raise RefusedError

    def refuse_type(self, node: Node, wanted: str) -> NoReturn:
        """Refuse a node because it is of another type.

        Raises:
            RefusedError: always.
        """
        self.refuse(Reason.WRONG_TYPE, f"{self.name} must be {wanted}; this is {described(node)}")


class _NoValue(enum.Enum):
    REFUSED = "refused"


class Origin(enum.Enum):
    """Where a field's value comes from."""

    GIVEN = "given"
    DEFAULT = "default"
    REFUSED = "refused"
    """There is none: it was given wrong, or is missing although required."""


@attrs.frozen
class Field(Generic[T]):
    """One field of a record after decoding."""

    spot: Spot
    origin: Origin
    _value: T | _NoValue = _NoValue.REFUSED

    @property
    def value(self) -> T:
        """The value.

        Raises:
            RefusedError: there is none; why is reported already.
        """
        if isinstance(self._value, _NoValue):
            raise RefusedError
        return self._value

    @property
    def is_given(self) -> bool:
        """Whether the document has it and it is right."""
        return self.origin is Origin.GIVEN

    @property
    def is_usable(self) -> bool:
        """Whether `value` gives one, so that a rule over several fields can look at it."""
        return self.origin is not Origin.REFUSED


def mapping(node: Node, spot: Spot) -> MappingNode:
    """The node as a mapping."""
    if isinstance(node, ScalarNode) and node.is_null:
        raise UnsetError
    if not isinstance(node, MappingNode):
        spot.refuse_type(node, "a mapping")
    return node


class Record:
    """A mapping whose fields have names of their own."""

    def __init__(self, node: MappingNode, spot: Spot) -> None:
        self.spot = spot
        self._entries = {entry.key: entry for entry in node.entries}

    @classmethod
    def closed(cls, node: Node, spot: Spot, known: Collection[str]) -> Record:
        """A record that has the known fields and no others; others are reported as UnknownField."""
        found = mapping(node, spot)
        _report_unknown(found, spot, known)
        return cls(found, spot)

    @classmethod
    def open(cls, node: Node, spot: Spot) -> Record:
        """A record of which only some fields are read."""
        return cls(mapping(node, spot), spot)

    def __contains__(self, name: str) -> bool:
        """Whether the field is given and not null."""
        entry = self._entries.get(name)
        return entry is not None and not (isinstance(entry.value, ScalarNode) and entry.value.is_null)

    def required(self, name: str, decoder: Decoder[T]) -> Field[T]:
        """Decode a field that must be there; MissingField, at the mapping's place, when it is not."""
        entry = self._entries.get(name)
        if entry is None:
            return self._missing(name, self.spot.place)
        try:
            return self._decoded(entry, decoder)
        except UnsetError:
            return self._missing(name, entry.key_place)

    def optional(self, name: str, decoder: Decoder[T], default: D) -> Field[T | D]:
        """Decode a field that may be absent or null."""
        entry = self._entries.get(name)
        if entry is not None:
            try:
                return self._decoded(entry, decoder)
            except UnsetError:
                return Field(self.at(name), Origin.DEFAULT, default)
        return Field(self.at(name), Origin.DEFAULT, default)

    def at(self, name: str) -> Spot:
        """The spot of a field, there or not."""
        entry = self._entries.get(name)
        return self.spot.child(name, self.spot.place if entry is None else entry.value.place)

    def at_key(self, name: str) -> Spot:
        """The spot of a field's key, for problems with its being there at all."""
        entry = self._entries.get(name)
        return self.spot.child(name, self.spot.place if entry is None else entry.key_place)

    def refuse_together(self, *names: str) -> None:
        """Report every field but the first of those names that are given; at most one may be.

        Raises:
            RefusedError: more than one is given.
        """
        given = sorted((name for name in names if name in self), key=lambda name: self.at_key(name).place)
        for extra in given[1:]:
            message = f"{extra} cannot stand beside {given[0]}; give one of {listed(names)}"
            self.at_key(extra).report(Reason.INVALID_VALUE, message)
        if len(given) > 1:
            raise RefusedError

    def require_one(self, *names: str) -> str:
        """The one field of these names that is given.

        Raises:
            RefusedError: none is given, or more than one.
        """
        self.refuse_together(*names)
        given = [name for name in names if name in self]
        if not given:
            self.spot.refuse(Reason.MISSING_FIELD, f"{self.spot.name} needs one of {listed(names)}")
        return given[0]

    def _decoded(self, entry: Entry, decoder: Decoder[T]) -> Field[T]:
        spot = self.spot.child(entry.key, entry.value.place)
        try:
            return Field(spot, Origin.GIVEN, decoder(entry.value, spot))
        except RefusedError:
            return Field(spot, Origin.REFUSED)

    def _missing(self, name: str, place: Place) -> Field[T]:
        spot = self.spot.child(name, place)
        spot.report(Reason.MISSING_FIELD, f"{name} is required")
        return Field(spot, Origin.REFUSED)


def _report_unknown(node: MappingNode, spot: Spot, known: Collection[str]) -> None:
    for entry in node.entries:
        if spot.findings.is_full:
            return
        if entry.key not in known:
            spot.child(entry.key, entry.key_place).report(Reason.UNKNOWN_FIELD, _unknown(entry.key, spot, known))


def _unknown(key: str, spot: Spot, known: Collection[str]) -> str:
    guess = nearest(key, sorted(known))
    better = f"did you mean {guess}?" if guess else f"known are {', '.join(sorted(known))}"
    return f"{spot.path} has no field {shown(key)}; {better}"


def given_entries(node: MappingNode, spot: Spot) -> Iterator[tuple[Entry, Spot]]:
    """The entries of a mapping whose keys are data, each with its spot."""
    for entry in node.entries:
        yield entry, spot.child(entry.key, entry.value.place)


_UNSET_ITEM: Final = 'nothing stands here; an empty text is written ""'


def item(node: Node, spot: Spot, decoder: Decoder[T]) -> T:
    """Decode an item of a list or a value of a map, where null is a mistake."""
    try:
        return decoder(node, spot)
    except UnsetError:
        spot.refuse(Reason.WRONG_TYPE, f"{spot.name}: {_UNSET_ITEM}")


def attempt(spot: Spot, make: Callable[[], T]) -> Field[T]:
    """What several fields make together, as a field: refused when making it is."""
    try:
        return Field(spot, Origin.GIVEN, make())
    except RefusedError:
        return Field(spot, Origin.REFUSED)
