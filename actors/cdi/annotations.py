"""Annotations inside a spec follow Kubernetes' rules (since 0.6.0): enforced when writing, a warning when reading.

The Go library means to check them and does not, so files that break the rules are about and load.
Source: CDI SPEC.md, "annotations"; Kubernetes, "Annotations: Syntax and character set".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .problems import CdiReason, Remark, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .problems import Path

_TOTAL_BYTES_MAX: Final = 256 << 10
_NAME_CHARACTERS_MAX: Final = 63
_PREFIX_CHARACTERS_MAX: Final = 253
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_PREFIX: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def annotation_remarks(annotations: Mapping[str, str], at: Path) -> Iterator[Remark]:
    """What Kubernetes would refuse in a map of annotations."""
    if not annotations:
        return
    for key in annotations:
        fault = _key_fault(key)
        if fault:
            yield _remark(at / key, f"the annotation key {quoted(key)} {fault}", key)
    size = sum(len(text.encode(errors="replace")) for pair in annotations.items() for text in pair)
    if size > _TOTAL_BYTES_MAX:
        yield _remark(at, f"the annotations have {size} bytes; {_TOTAL_BYTES_MAX} are the most", str(size))


def _key_fault(key: str) -> str | None:
    # Kubernetes compares keys in lower case.
    prefix, slash, name = key.lower().rpartition("/")
    if slash and not (len(prefix) <= _PREFIX_CHARACTERS_MAX and _PREFIX.fullmatch(prefix)):
        return "must have a DNS subdomain before its slash"
    if len(name) > _NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        return "must be at most 63 letters, digits, _ . and -, the first and last a letter or digit"
    return None


def _remark(path: Path, message: str, value: str) -> Remark:
    return Remark(reason=CdiReason.BAD_ANNOTATION, path=path, message=message, value=value)
