"""How things in documents may be called, as decoders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from statemachine.reasons import Reason

from .document.fields import given_text, text_like
from .document.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .document import Field, Node, Spot

RESERVED_CONTAINER: Final = "pause"
"""The sandbox's root container; no application container may have its name."""
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")
_LABEL_RULE: Final = "1 to 63 lower-case letters, digits and dashes, a letter or digit at both ends"

uid = text_like(_UID, "1 to 63 letters, digits and dashes, beginning with a letter or digit", Reason.INVALID_UID)
label = text_like(_LABEL, _LABEL_RULE)
subdomain = text_like(_SUBDOMAIN, "at most 253 lower-case letters, digits, dashes and dots")


def container_name(node: Node, spot: Spot) -> str:
    """A DNS label other than `pause`."""
    name = given_text(node, spot)
    if name == RESERVED_CONTAINER:
        spot.refuse(Reason.INVALID_CONTAINER_NAME, f"{spot.name} {shown(name)} is kept for the sandbox's own container")
    if not _LABEL.fullmatch(name):
        spot.refuse(Reason.INVALID_CONTAINER_NAME, f"{spot.name} {shown(name)} must be {_LABEL_RULE}")
    return name


def report_duplicate_containers(names: Iterable[Field[str]]) -> None:
    """Report DuplicateContainer at every name that another container has already."""
    seen: set[str] = set()
    for field in names:
        if not field.is_usable:
            continue
        if field.value in seen:
            field.spot.report(Reason.DUPLICATE_CONTAINER, f"another container is named {shown(field.value)} already")
        seen.add(field.value)
