"""What a config says otherwise than the default: what a person has changed, and what a result remembers of it."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from sim.fleet.config import read_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sim.fleet.config import FleetConfig


def differing(config: FleetConfig) -> dict[str, Any]:
    """By dotted names, as `suspension.idle_timeout_s`, in order; a distribution is one value, and `inf` a word."""
    default, given = _default(), dict(_settings(msgspec.to_builtins(config)))
    return {name: given[name] for name in sorted(given) if name not in default or default[name] != given[name]}


@cache
def _default() -> dict[str, Any]:
    return dict(_settings(msgspec.to_builtins(read_config())))


def _settings(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and "kind" not in value:
            yield from _settings(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, float) and math.isinf(value) else value
