"""The parameters of every workload in Markdown, for docs/traces.md: from what the classes say of themselves."""

from __future__ import annotations

import inspect
import re
import sys
from typing import TYPE_CHECKING

import attrs

from .registry import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Mapping


def as_markdown() -> str:
    """A section for each workload, a row for each parameter."""
    parts = []
    for name, cls in WORKLOADS.items():
        module = (sys.modules[cls.__module__].__doc__ or "").strip()
        said = attributes(cls)
        lines = [f"### {name}", "", module, "", "| parameter | default | |", "|---|---|---|"]
        lines += [f"| `{each.name}` | {each.default} | {said[each.name]} |" for each in attrs.fields(cls)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def attributes(cls: type) -> Mapping[str, str]:
    """What a class's docstring says of each of its attributes, on one line each."""
    text = inspect.getdoc(cls) or ""
    _, _, listed = text.partition("Attributes:\n")
    return {
        found["name"]: " ".join(found["text"].split())
        for found in re.finditer(r"^ {4}(?P<name>\w+): (?P<text>.*(?:\n {8}.*)*)", listed, re.MULTILINE)
    }
