"""Every fuzz target by its name, in the order in which `make fuzz` takes them."""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tests.cdi.fuzz import CDI
from tests.fuzzing.control_socket import CONTROL
from tests.fuzzing.documents import ASSIGNMENT, BUNDLE, SETTINGS
from tests.fuzzing.http import HTTP
from tests.fuzzing.records import JOURNAL, MANIFESTS, RECORD, VOLUMES
from tests.fuzzing.tools import ELF, TOOLS
from tests.fuzzing.traces import TRACES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fuzzing.promises import Target

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        target.name: target
        for target in (
            CDI, ASSIGNMENT, BUNDLE, JOURNAL, MANIFESTS, TOOLS, CONTROL, HTTP, VOLUMES, RECORD, SETTINGS, ELF,
            TRACES,
        )
    }
)  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(f"{' '.join(TARGETS)}\n")
