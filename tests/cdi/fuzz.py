"""The CDI library as a fuzz target: its samples as first inputs, each to be read and to be injected into a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.cdi.fuzz_invariants import BETWEEN, check
from tests.cdi.oracle.corpus import TOKENS, bad_samples, good_samples
from tests.cdi.oracle.differences import spec
from tests.fuzzing.promises import Target

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELDS: Final = (
    "cdiVersion", "kind", "annotations", "devices", "containerEdits", "name", "env", "deviceNodes", "netDevices",
    "hooks", "mounts", "intelRdt", "additionalGids", "path", "hostPath", "type", "major", "minor", "fileMode",
    "permissions", "uid", "gid", "hostInterfaceName", "containerPath", "options", "hookName", "args", "timeout",
    "closID", "schemata", "enableMonitoring", "enableCMT", "process", "linux", "resources", "allow", "destination",
    "vv.com/gpu", "1.1.0", "createContainer", "&a ", "*a", "<<: *a", "!!binary ", "? ", "|\n", ">-\n", "---\n",
    "\\ud83d\\ude00", "\\/",
)  # fmt: skip
OWN: Final = spec("{env: [A=b], deviceNodes: [{path: /dev/x}], mounts: [{hostPath: /a, containerPath: /b}]}")
"""A spec for where no samples are beside the checkout."""
DOCUMENT: Final = (
    b'{"process": {"env": ["A=1"]}, "linux": {"namespaces": [{"type": "user"}]}, "mounts": [{"destination": "/a"}]}'
)


def _seeds() -> Iterable[tuple[str, bytes]]:
    for name, data in (("own", OWN), *((path.name, path.read_bytes()) for path in (*good_samples(), *bad_samples()))):
        yield f"read-{name}", b"\0" + data
        yield f"inject-{name}", b"\2" + data + BETWEEN + DOCUMENT
    yield "name", b"\1nvidia.com/gpu=0:0,vv.com/gpu=all"
    yield "built", b"\3" + bytes(range(1, 120))


CDI: Final = Target(name="cdi", check=check, seeds=_seeds, words=(*FIELDS, *TOKENS))
