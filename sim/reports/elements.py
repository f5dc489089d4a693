"""HTML and SVG elements as text. Whatever is not made by `element` is escaped: names in a trace are anybody's."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID: Final = frozenset({"br", "col", "meta"})
"""Elements of HTML that have no end."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """One element.

    Args:
        name: of the element, as HTML or SVG has it.
        children: markup, which is taken as it is, and text, which is escaped.
        attributes: a trailing `_` is left out, any other one is a dash; None is no attribute.
    """
    words = "".join(f' {_name(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    inner = "".join(escaped(child) for child in children)
    return Markup(f"<{name}{words}>" if name in _VOID else f"<{name}{words}>{inner}</{name}>")


def joined(children: Iterable[str]) -> Markup:
    """Several as one."""
    return Markup("".join(escaped(child) for child in children))


def escaped(text: str) -> Markup:
    """Markup as it is; any other text so that it means itself."""
    return text if isinstance(text, Markup) else Markup(html.escape(text))


def number(value: float) -> str:
    """A coordinate: to a tenth of a pixel, no longer than it must be."""
    text = f"{value:.1f}"
    return "0" if text == "-0.0" else text.removesuffix(".0")


def _name(key: str) -> str:
    if key in {"viewBox", "preserveAspectRatio"}:  # these two have capitals
        return key
    return key.removesuffix("_").replace("_", "-")


def _value(value: str | float) -> str:
    return html.escape(value) if isinstance(value, str) else number(value)
