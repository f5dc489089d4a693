"""What documents may say and this version does not perform: one row each, deleted when the step is built.

A field of the table is refused with NotSupported only when it is otherwise right, so that a mistake in it is reported
as the mistake it is.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .document import Spot


class Feature(enum.Enum):
    """A capability that a document can ask for."""

    NETWORK_PORTS = enum.auto()
    NETWORK_EGRESS = enum.auto()
    HTTP_PROBES = enum.auto()
    TCP_PROBES = enum.auto()


@attrs.frozen
class Unbuilt:
    """A row: the field as a document writes it, and what is missing behind it, in words."""

    field: str
    subject: str


F, U = Feature, Unbuilt
NOT_BUILT: Final[Mapping[Feature, Unbuilt]] = MappingProxyType(
    {
        F.NETWORK_PORTS: U("network.ports", "the actor's network: forwarded ports"),
        F.NETWORK_EGRESS: U("network.egress: Deny", "the actor's network: denied egress"),
        F.HTTP_PROBES: U("containers[].wakeupProbe.httpGet", "the actor's network: probes over HTTP"),
        F.TCP_PROBES: U("containers[].wakeupProbe.tcpSocket", "the actor's network: probes over TCP"),
    }
)


def refuse_unbuilt(feature: Feature, spot: Spot) -> None:
    """Report NotSupported at the spot while the feature is not built; does nothing once its row is gone."""
    row = NOT_BUILT.get(feature)
    if row is not None:
        spot.report(Reason.NOT_SUPPORTED, f"{row.field} is not supported yet: {row.subject}")
