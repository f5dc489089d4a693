"""How checks end, told to a person line by line and to a program as one JSON document."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

EXIT_NOT_POSSIBLE: Final = 77
_NAME_CHARACTERS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one check ended: `ok`, `fail`, or `not reached` when one before it that it needs did not end well."""

    name: str
    status: str
    took_s: float
    detail: str

    @property
    def is_good(self) -> bool:
        return self.status == "ok"


def tell(outcome: Outcome) -> None:
    """One line for one check, as soon as it has ended."""
    name = outcome.name.ljust(_NAME_CHARACTERS)
    sys.stdout.write(f"{outcome.status.ljust(11)}  {name}  {outcome.took_s:6.1f} s  {outcome.detail}\n")
    sys.stdout.flush()


def exit_code(outcomes: list[Outcome]) -> int:
    return 0 if outcomes and all(each.is_good for each in outcomes) else 1


def write(path: Path | None, *, code: int, why: str | None, outcomes: list[Outcome], found: dict[str, Any]) -> None:
    """The report: `ok`, `exitCode`, `notPossible` (why, or null), `found`, and each check."""
    if path is None:
        return
    document = {
        "v": 1,
        "ok": code == 0,
        "exitCode": code,
        "notPossible": why,
        "found": found,
        "checks": [asdict(each) for each in outcomes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
