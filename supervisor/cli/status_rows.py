"""The rows of `greenroom status`."""

from __future__ import annotations

from typing import Any, Final

COLUMNS: Final = ("UID", "NAME", "GENERATION", "STATE", "SINCE", "CONTAINERS", "ERROR")


def row_of(actor: dict[str, Any]) -> tuple[str, ...]:
    """One actor's row of the table."""
    return (
        actor["uid"],
        actor["name"] or "-",
        str(actor["generation"]),
        actor["state"],
        actor["since"],
        " ".join(container_word(each) for each in actor["containers"]),
        actor["error"]["reason"] if actor["error"] else "-",
    )


def container_word(each: dict[str, Any]) -> str:
    """A container with where it is, and its exit code if it has one."""
    code = "" if each["exitCode"] is None else f"({each['exitCode']})"
    return f"{each['name']}={each['state']}{code}"
