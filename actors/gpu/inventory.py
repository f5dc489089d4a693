"""The GPUs of the pod. A GPU's index, its minor and its place on the PCI bus are three orders; the minor's counts here.

The minor is the number of its device node, and what a snapshot is mapped by at a restore: runsc pairs the GPUs of both
in the order of their minors. NVML's index is dense over the GPUs that it sees, changes when one is lost, and is nowhere
in here.

Source: DESIGN, "Partition"; the NVIDIA kernel modules' minors (254 is modeset's node and 255 the control node's).
"""

from __future__ import annotations

import re
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from statemachine.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MINOR_MAX: Final = 253
"""The highest minor that a GPU's node can have; above it are the control nodes, which are common to all."""
UNSEEN: Final = "no longer seen"
_TEXT_CHARACTERS_MAX: Final = 256
_UUID: Final = re.compile(r"GPU-[0-9A-Za-z-]{1,92}", re.ASCII)
_MIG_UUID: Final = re.compile(r"MIG-[0-9A-Za-z/-]{1,92}", re.ASCII)
_PCI: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)


def pci_bus_id(text: str) -> str:
    """The one spelling of a PCI bus id, sysfs' own: `0000:3b:00.0` also for NVML's `00000000:3B:00.0`.

    Raises:
        ValueError: it is none.
    """
    found = _PCI.fullmatch(text)
    if found is None:
        message = f"{text!r:.60} is no PCI bus id"
        raise ValueError(message)
    domain, bus, device, function = found.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def _text(text: str) -> str:
    return one_line(text, _TEXT_CHARACTERS_MAX)


def check_uuid(_instance: object, _attribute: attrs.Attribute[Any], value: str) -> None:
    """Refuse (ValueError) what is no GPU's UUID; a validator of attrs."""
    if not _UUID.fullmatch(value):
        message = f"{value!r:.60} is no GPU's UUID"
        raise ValueError(message)


def _check_minor(_instance: object, _attribute: attrs.Attribute[int], value: int) -> None:
    if not 0 <= value <= MINOR_MAX:
        message = f"{value} is no GPU's minor (0 to {MINOR_MAX})"
        raise ValueError(message)


def _check_mig(_instance: object, _attribute: attrs.Attribute[Any], value: tuple[str, ...] | None) -> None:
    for uuid in value or ():
        if not _MIG_UUID.fullmatch(uuid):
            message = f"{uuid!r:.60} is no MIG device's UUID"
            raise ValueError(message)


@attrs.frozen(kw_only=True)
class Gpu:
    """One GPU.

    Attributes:
        uuid: `GPU-…`; the one name that stays with the board.
        minor: of its node, `/dev/nvidia<minor>`.
        pci_bus_id: as sysfs spells it; NVML's spelling is turned into that.
        model: the product's name.
        mig_devices: the UUIDs of its MIG devices, none while it is partitioned into none; None when MIG is off, and
            only then can it be granted.
        lost: why nobody can work with it (an NVML error's name, `XID 79`); None while it is healthy.
    """

    uuid: str = attrs.field(validator=check_uuid)
    minor: int = attrs.field(validator=_check_minor)
    pci_bus_id: str = attrs.field(converter=pci_bus_id)
    model: str = attrs.field(converter=_text)
    mig_devices: tuple[str, ...] | None = attrs.field(default=None, validator=_check_mig)
    lost: str | None = attrs.field(default=None, converter=attrs.converters.optional(_text))

    @property
    def path(self) -> str:
        """Its device node, the same in the pod and in a container."""
        return f"/dev/nvidia{self.minor}"

    @property
    def is_usable(self) -> bool:
        """Whether it can be granted: healthy, and whole."""
        return self.lost is None and self.mig_devices is None


def _by_minor(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    return tuple(sorted(gpus, key=attrgetter("minor")))


def _check_distinct(_instance: object, _attribute: attrs.Attribute[Any], value: tuple[Gpu, ...]) -> None:
    for name in ("uuid", "minor", "pci_bus_id"):
        met = set[object]()
        for gpu in value:
            if getattr(gpu, name) in met:
                message = f"two GPUs have the {name} {getattr(gpu, name)}"
                raise ValueError(message)
            met.add(getattr(gpu, name))


def _unchangeable(causes: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(causes))


@attrs.frozen
class Inventory:
    """All GPUs of the pod, by minor; two with one UUID, minor or place are refused (ValueError).

    Attributes:
        gpus: all, the lost ones included.
        withheld: by UUID, why nobody new is granted a GPU although it answers; whoever has it works on with it. No
            monitor tells this: see `quarantine`.
        usable: those that one can work with.
    """

    gpus: tuple[Gpu, ...] = attrs.field(default=(), converter=_by_minor, validator=_check_distinct)
    withheld: Mapping[str, str] = attrs.field(factory=dict, converter=_unchangeable, hash=False)

    usable: tuple[Gpu, ...] = attrs.field(init=False, eq=False, repr=False)

    @usable.default
    def _usable(self) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self.gpus if gpu.is_usable)

    @property
    def grantable(self) -> tuple[Gpu, ...]:
        """Those that can be granted anew."""
        return tuple(gpu for gpu in self.usable if gpu.uuid not in self.withheld)

    def gpu(self, uuid: str) -> Gpu | None:
        """The GPU of this UUID."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def with_lost(self, uuid: str, cause: str) -> Inventory:
        """The inventory after one was lost; the first cause stays, an unknown UUID changes nothing."""
        return Inventory(
            attrs.evolve(gpu, lost=cause) if gpu.uuid == uuid and gpu.lost is None else gpu for gpu in self.gpus
        )

    def withholding(self, causes: Mapping[str, str]) -> Inventory:
        """The inventory of which these GPUs are withheld, and no others."""
        return self if self.withheld == causes else attrs.evolve(self, withheld=causes)

    def succeeded_by(self, seen: Inventory) -> Inventory:
        """The inventory after the GPUs were looked at again.

        What is seen is as it is seen, so a GPU that is healthy again comes back by itself. One that was known and is
        not seen is lost, not forgotten: somebody may hold it, and somebody else must be told why it is not free. It is
        forgotten when another board stands in its place.
        """
        taken = {(name, getattr(gpu, name)) for gpu in seen.gpus for name in ("uuid", "minor", "pci_bus_id")}
        unseen = [
            attrs.evolve(gpu, lost=gpu.lost or UNSEEN)
            for gpu in self.gpus
            if not taken & {("uuid", gpu.uuid), ("minor", gpu.minor), ("pci_bus_id", gpu.pci_bus_id)}
        ]
        return Inventory((*seen.gpus, *unseen))
