"""Vendors, classes, kinds, device names and qualified names.

Source: CDI SPEC.md, "CDI JSON Specification" (kind, name). Where the Go library reads names otherwise than the text
says, it is followed: see docs/cdi.md.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from .problems import CdiError, CdiProblem, CdiReason, quoted

_VENDOR_OR_CLASS: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_KIND_RULE: Final = "must begin with a letter, end with a letter or digit, and hold letters, digits, _ . and - between"
_DEVICE_RULE: Final = "must begin and end with a letter or digit, and hold letters, digits, _ . : and - between"


@attrs.frozen
class QualifiedName:
    """`vendor/class=device`."""

    vendor: str
    class_name: str
    device: str

    @property
    def kind(self) -> str:
        """`vendor/class`."""
        return f"{self.vendor}/{self.class_name}"

    def __str__(self) -> str:
        """The name as it is written."""
        return f"{self.kind}={self.device}"


def vendor_fault(vendor: str) -> str | None:
    """What is wrong with a vendor, or None."""
    return _fault("vendor", vendor, _VENDOR_OR_CLASS, _KIND_RULE)


def class_fault(class_name: str) -> str | None:
    """What is wrong with a class, or None."""
    return _fault("class", class_name, _VENDOR_OR_CLASS, _KIND_RULE)


def device_name_fault(name: str) -> str | None:
    """What is wrong with a device's name, or None."""
    return _fault("device name", name, _DEVICE, _DEVICE_RULE)


def kind_fault(kind: str) -> str | None:
    """What is wrong with a kind, or None."""
    vendor, class_name = split_kind(kind)
    if not vendor:
        return f"the kind {quoted(kind)} must be vendor/class"
    return vendor_fault(vendor) or class_fault(class_name)


def split_kind(kind: str) -> tuple[str, str]:
    """Vendor and class, cut at the first slash; ("", kind) when it does not have both. Nothing is checked."""
    vendor, _, class_name = kind.partition("/")
    return (vendor, class_name) if vendor and class_name else ("", kind)


def parse_kind(kind: str) -> tuple[str, str]:
    """Vendor and class of a kind.

    Raises:
        CdiError: BadKind.
    """
    fault = kind_fault(kind)
    if fault:
        raise CdiError(CdiProblem(reason=CdiReason.BAD_KIND, message=fault, value=kind))
    return split_kind(kind)


def split_name(name: str) -> tuple[str, str, str]:
    """Vendor, class and device, cut at the first "=" and the first "/"; ("", "", name) when it does not have all three.

    Nothing else is checked. What begins with a slash is a path, never a CDI name (its vendor would be empty), so that
    lists may mix both.
    """
    kind, _, device = name.partition("=")
    vendor, class_name = split_kind(kind)
    return (vendor, class_name, device) if vendor and device else ("", "", name)


def parse_name(name: str) -> QualifiedName:
    """The parts of a qualified name, checked.

    Raises:
        CdiError: BadName.
    """
    vendor, class_name, device = split_name(name)
    if not vendor:
        fault: str | None = f"{quoted(name)} is no qualified name: vendor/class=device"
    else:
        fault = vendor_fault(vendor) or class_fault(class_name) or device_name_fault(device)
    if fault:
        raise CdiError(CdiProblem(reason=CdiReason.BAD_NAME, message=fault, value=name))
    return QualifiedName(vendor, class_name, device)


def is_qualified(name: str) -> bool:
    """Whether `parse_name` takes it."""
    try:
        parse_name(name)
    except CdiError:
        return False
    return True


def _fault(what: str, text: str, pattern: re.Pattern[str], rule: str) -> str | None:
    if pattern.fullmatch(text):
        return None
    return f"the {what} {quoted(text)} {rule}" if text else f"the {what} is empty"
