"""deploy/Containerfile as its instructions, stage by stage: as much of the language as that file uses."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from tests.needs import ROOT

CONTAINERFILE: Final = ROOT / "deploy" / "Containerfile"
KNOWN: Final = {"ARG", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "STOPSIGNAL", "USER", "WORKDIR"}


@attrs.frozen
class Instruction:
    """One instruction, its lines joined."""

    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """What it is given, flags left out."""
        return [each for each in shlex.split(self.rest) if not each.startswith("--")]

    @property
    def flags(self) -> dict[str, str]:
        """Its flags, as `--from=NAME`."""
        pairs = (each[2:].partition("=") for each in shlex.split(self.rest) if each.startswith("--"))
        return {name: value for name, _, value in pairs}

    @property
    def commands(self) -> list[str]:
        """Of a RUN: its commands, one after the other."""
        return [re.sub(r"\s+", " ", each).strip() for each in self.rest.split("&&")]

    @property
    def exec_form(self) -> list[str]:
        """The JSON list that it is given; a shell would be needed for anything else."""
        found = json.loads(self.rest)
        assert isinstance(found, list)
        return found


@attrs.frozen
class Stage:
    """From one FROM to the next."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]

    def all(self, word: str) -> list[Instruction]:
        """Its instructions of one kind."""
        return [each for each in self.instructions if each.word == word]


def read(path: Path = CONTAINERFILE) -> tuple[dict[str, str], list[Stage]]:
    """What stands before the first stage as ARG, and the stages."""
    arguments: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for each in _instructions(path.read_text()):
        assert each.word in KNOWN, each
        if each.word == "FROM":
            base, *named = each.words
            stages.append((named[1] if named else "", base, []))
        elif stages:
            stages[-1][2].append(each)
        else:
            name, _, value = each.rest.partition("=")
            arguments[name] = value
    return arguments, [Stage(name, base, tuple(found)) for name, base, found in stages]


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in filter(str.strip, "\n".join(lines).replace("\\\n", " ").splitlines()):
        word, _, rest = line.partition(" ")
        yield Instruction(word, rest.strip())
