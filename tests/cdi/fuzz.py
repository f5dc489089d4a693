"""The CDI library under a fuzzer that sees which branches an input takes: `python -m tests.cdi.fuzz [SECONDS]`.

What it learns stays in build/cdi-fuzz/, so that the next run goes on from there; an input that breaks something lies
beside it, and `python -m tests.cdi.fuzz FILE` tries it again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import atheris

with atheris.instrument_imports(include=["actors", "yaml"]):
    from tests.cdi.fuzz_invariants import BETWEEN, check

from tests.cdi.oracle.corpus import TOKENS, bad_samples, good_samples
from tests.needs import ROOT

PLACE: Final = ROOT / "build" / "cdi-fuzz"
DEFAULT_S: Final = "600"
BYTES_MAX: Final = 6000
MEMORY_MB_MAX: Final = 2048
FIELDS: Final = (
    "cdiVersion", "kind", "annotations", "devices", "containerEdits", "name", "env", "deviceNodes", "netDevices",
    "hooks", "mounts", "intelRdt", "additionalGids", "path", "hostPath", "type", "major", "minor", "fileMode",
    "permissions", "uid", "gid", "hostInterfaceName", "containerPath", "options", "hookName", "args", "timeout",
    "closID", "schemata", "enableMonitoring", "enableCMT", "process", "linux", "resources", "allow", "destination",
    "vv.com/gpu", "1.1.0", "createContainer", "&a ", "*a", "<<: *a", "!!binary ", "? ", "|\n", ">-\n", "---\n",
    "\\ud83d\\ude00", "\\/",
)  # fmt: skip


def main() -> None:
    """Fuzz for some seconds, or try one file."""
    given = sys.argv[1] if len(sys.argv) > 1 else DEFAULT_S
    if not given.isdigit():
        check(Path(given).read_bytes())
        return
    corpus = PLACE / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    _sow(corpus)
    words = PLACE / "words.dict"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in dict.fromkeys((*FIELDS, *TOKENS))))
    flags = {
        "max_total_time": given, "max_len": BYTES_MAX, "timeout": 25, "rss_limit_mb": MEMORY_MB_MAX, "dict": words,
        "artifact_prefix": f"{PLACE}/", "print_final_stats": 1, "verbosity": 1,
    }  # fmt: skip
    atheris.Setup([sys.argv[0], *(f"-{flag}={value}" for flag, value in flags.items()), str(corpus)], check)
    atheris.Fuzz()


def _sow(corpus: Path) -> None:
    """The samples as first inputs: to be read, and to be injected into a document."""
    document = b'{"process": {"env": ["A=1"]}, "linux": {"namespaces": [{"type": "user"}]}, "mounts": []}'
    for path in (*good_samples(), *bad_samples()):
        data = path.read_bytes()
        (corpus / f"read-{path.name}").write_bytes(b"\0" + data)
        (corpus / f"inject-{path.name}").write_bytes(b"\2" + data + BETWEEN + document)
    (corpus / "name").write_bytes(b"\1nvidia.com/gpu=0:0,vv.com/gpu=all")
    (corpus / "built").write_bytes(b"\3" + bytes(range(1, 120)))


def _escaped(word: str) -> str:
    return "".join(each if each.isalnum() else f"\\x{byte:02x}" for each in word for byte in each.encode())


if __name__ == "__main__":
    main()
