"""Faults: what goes wrong with which call of a port. Plain values with a stable JSON form, for files that reproduce.

    Fault(id="full", when=When(port="files", method="append_durably", nth=3), what=Fail("ENOSPC"))

reads: the third time that something is appended durably, there is no room.
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import cattrs
import orjson
from cattrs.preconf.orjson import make_converter
from cattrs.strategies import configure_tagged_union

if TYPE_CHECKING:
    from sim.world.calls import Call

PORTS: Final = frozenset({"files", "processes", "watch", "net", "signals", "wall", "gpus", "stores", "cgroups"})

DEADLINE: Final = "DeadlineExceeded"
TOO_LARGE: Final = "TooLarge"
END_OF_STREAM: Final = "EndOfStream"
BROKEN: Final = "BrokenResource"
STORE: Final = "StoreError"
ERRORS: Final = frozenset({DEADLINE, TOO_LARGE, END_OF_STREAM, BROKEN, STORE})
"""What a port raises beside errors with an errno."""


def _known_error(_instance: object, _attribute: object, value: str) -> None:
    if value not in ERRORS and value not in errno.errorcode.values():
        raise ValueError(f"{value} is neither an errno nor one of {sorted(ERRORS)}")


def _known_port(_instance: object, _attribute: object, value: str | None) -> None:
    if value is not None and value not in PORTS:
        raise ValueError(f"{value} is no port; there are {sorted(PORTS)}")


def _positive(_instance: object, attribute: Any, value: float | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{attribute.name} counts from 1, not {value}")


def _chance(_instance: object, _attribute: object, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"a probability is between 0 and 1, not {value}")


def _pattern(_instance: object, _attribute: object, value: str | None) -> None:
    if value is not None:
        re.compile(value)


# ---- when


@attrs.frozen(kw_only=True)
class When:
    """Which calls. Everything that is given must hold; nothing given is every call.

    Attributes:
        port: of this port.
        method: of this name.
        argument: whose main argument (a path, a command line) has this regular expression in it.
        incarnation: of this life of the supervisor, counted from 1.
        number: the call with this number of the whole run.
        nth: of those that fit, the nth, counted from 1.
        from_s: not before this virtual second.
        probability: of those that fit, each with this probability, by the world's randomness.
        times_max: at most so many; None is every one.
    """

    port: str | None = attrs.field(default=None, validator=_known_port)
    method: str | None = None
    argument: str | None = attrs.field(default=None, validator=_pattern)
    incarnation: int | None = attrs.field(default=None, validator=_positive)
    number: int | None = attrs.field(default=None, validator=_positive)
    nth: int | None = attrs.field(default=None, validator=_positive)
    from_s: float | None = None
    probability: float = attrs.field(default=1.0, validator=_chance)
    times_max: int | None = attrs.field(default=1, validator=_positive)

    def fits(self, call: Call) -> bool:
        """Whether a call is of the kind; `nth`, `probability` and `times_max` are for who counts."""
        return (
            (self.method is None or self.method == call.method)
            and (self.port is None or self.port == call.port)
            and (self.number is None or self.number == call.number)
            and (self.incarnation is None or self.incarnation == call.incarnation)
            and (self.from_s is None or call.at_s >= self.from_s)
            and (self.argument is None or re.search(self.argument, call.argument) is not None)
        )


# ---- what


@attrs.frozen
class Fail:
    """The call has no effect and raises: an errno by its name, or an error that a port has besides.

    Attributes:
        error: `ENOSPC`, …, or one of `ERRORS`.
    """

    error: str = attrs.field(validator=_known_error)


@attrs.frozen
class Hang:
    """The call does not begin before it is released.

    A command then runs into its deadline; a file cannot be cancelled, but for a few looks.

    Attributes:
        for_s: is released by itself after so long; None is only by `Planted.release`.
    """

    for_s: float | None = None


@attrs.frozen
class Slow:
    """The call begins so many seconds later.

    Attributes:
        seconds: how many.
    """

    seconds: float


@attrs.frozen
class Lie:
    """The call gives a wrong answer that is well formed.

    Attributes:
        how: which one of those that there are for this method, see `sim.lies`; None is the first.
    """

    how: str | None = None


@attrs.frozen
class Kill:
    """The supervisor is killed: before the call has any effect, or after all of it.

    Attributes:
        after: which.
    """

    after: bool = False


@attrs.frozen
class Halfway:
    """Something happens between two parts of a call that changes files or a store.

    Attributes:
        at: the part that was done last, as the file port names it: `created`, `written`, `synced`, `renamed`, …, or the
            port of the stores: `sent`, `stored`, `removed`.
        error: what goes wrong there; None kills the supervisor.
    """

    at: str
    error: str | None = attrs.field(default=None)

    @error.validator
    def _known(self, attribute: object, value: str | None) -> None:
        if value is not None:
            _known_error(self, attribute, value)


@attrs.frozen
class Cut:
    """A command is killed in the middle of its effect, as the kernel does when memory runs out.

    Attributes:
        nth: when it waits for the nth time: for time to pass, for a lock, for an answer of its sandbox.
    """

    nth: int = attrs.field(validator=attrs.validators.ge(1))


What: TypeAlias = Fail | Hang | Slow | Lie | Kill | Halfway | Cut


@attrs.frozen(kw_only=True)
class Fault:
    """One planned fault.

    Attributes:
        id: its name in reports.
        when: which calls it is about.
        what: what happens to them.
    """

    id: str
    when: When
    what: What


@attrs.frozen(kw_only=True)
class FaultReport:
    """What became of a planned fault.

    Attributes:
        fault: the plan.
        seen: how many calls were of its kind.
        fired: the numbers of the calls that it happened to.
    """

    fault: Fault
    seen: int
    fired: tuple[int, ...]


def _make() -> cattrs.Converter:
    converter = make_converter(omit_if_default=True, forbid_extra_keys=True)
    configure_tagged_union(What, converter, tag_name="type")
    return converter


CONVERTER: Final = _make()


def faults_as_json(faults: tuple[Fault, ...]) -> bytes:
    """The JSON of a plan; what has its default is left out."""
    return orjson.dumps(CONVERTER.unstructure(faults, unstructure_as=tuple[Fault, ...]))


def faults_from_json(data: bytes) -> tuple[Fault, ...]:
    """Read a plan.

    Raises:
        Exception: it is none; cattrs says where.
    """
    return CONVERTER.structure(orjson.loads(data), tuple[Fault, ...])
