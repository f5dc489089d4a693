"""Which kind of document a tree is, by apiVersion and kind."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from statemachine.reasons import Reason

from .assignment import API_VERSION, KIND
from .document.decoding import Record
from .document.fields import given_text
from .document.wording import listed, shown

if TYPE_CHECKING:
    from .document import Node, Spot

_FLEET_VERSION: Final = "/v1alpha1"
"""Pools and templates are somebody else's documents: any group, but this version."""


class Kind(enum.StrEnum):
    """The kinds that are read."""

    WORKER_ASSIGNMENT = KIND
    WORKER_POOL = "WorkerPool"
    ACTOR_TEMPLATE = "ActorTemplate"


def kind_of(node: Node, spot: Spot) -> Kind:
    """The kind of a document.

    Raises:
        RefusedError: it says none, or one that is not read (UnsupportedKind); reported.
        UnsetError: the document is null.
    """
    record = Record.open(node, spot)
    version_field = record.required("apiVersion", given_text)
    kind_field = record.required("kind", given_text)
    version, kind = version_field.value, kind_field.value
    known = [member.value for member in Kind]
    if kind not in known:
        kind_field.spot.refuse(Reason.UNSUPPORTED_KIND, f"kind must be {listed(known)}, not {shown(kind)}")
    found = Kind(kind)
    wanted = API_VERSION if found is Kind.WORKER_ASSIGNMENT else f"…{_FLEET_VERSION}"
    fits = version == API_VERSION if found is Kind.WORKER_ASSIGNMENT else version.endswith(_FLEET_VERSION)
    if not fits:
        message = f"apiVersion of a {kind} must be {wanted}, not {shown(version)}"
        version_field.spot.refuse(Reason.UNSUPPORTED_KIND, message)
    return found
