"""Greenroom's readers under a fuzzer that sees which branches an input takes.

    python -m tests.fuzzing TARGET [SECONDS]     one target; without a target: which there are
    python -m tests.fuzzing TARGET FILE          try one input again

What it learns stays in build/fuzz/TARGET/, so that the next run goes on from there; an input that breaks something lies
beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import atheris

# Whatever reads must be imported here, where each branch of it gets its mark.
with atheris.instrument_imports(include=["actors", "sim", "statemachine", "supervisor", "tarfile", "tomllib", "yaml"]):
    from tests.fuzzing.targets import TARGETS

from tests.fuzzing.promises import MEMORY_MB_MAX, attempt
from tests.needs import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzzing.promises import Target

PLACE: Final = ROOT / "build" / "fuzz"
DEFAULT_S: Final = "300"
ONE_INPUT_S: Final = 25


def main() -> int:
    """Fuzz for some seconds, or try one file."""
    name, given = (*sys.argv[1:3], DEFAULT_S)[:2] if len(sys.argv) > 1 else ("", DEFAULT_S)
    target = TARGETS.get(name)
    if target is None:
        sys.stderr.write(f"the targets are {' '.join(TARGETS)}\n")
        return 2
    if not given.isdigit():
        attempt(target, Path(given).read_bytes())
        return 0
    place = PLACE / name
    corpus = place / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed, data in target.seeds():
        (corpus / f"seed-{seed}").write_bytes(data)
    words = place / "words.dict"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in dict.fromkeys(target.words) if word))
    flags = {
        "max_total_time": given, "max_len": target.input_bytes_max, "timeout": ONE_INPUT_S,
        "rss_limit_mb": MEMORY_MB_MAX, "dict": words, "artifact_prefix": f"{place}/", "print_final_stats": 1,
        "verbosity": 1,
    }  # fmt: skip
    arguments = [sys.argv[0], *(f"-{flag}={value}" for flag, value in flags.items()), str(corpus)]
    atheris.Setup(arguments, _check(target))
    atheris.Fuzz()
    return 0


def _check(target: Target) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        attempt(target, data)

    return check


def _escaped(word: str) -> str:
    encoded = word.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 0x80 else f"\\x{byte:02x}" for byte in encoded)


if __name__ == "__main__":
    raise SystemExit(main())
