"""What is seen of a life from outside, in words that are the same on both sides: no times, ids, pids, paths, sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from actors.layout import ActorDir, StateDir
from tests.differential.applications import Ending
from tests.differential.lives import Life, name_of
from tests.real.onlookers import pids_below
from tests.real.process import wait_until
from tests.real.scenery import whole_lines

_VARYING: Final = frozenset({"at", "since", "createdAt", "created_at", "mono_s", "bootId", "seq", "v", "sha256"})
_ID: Final = re.compile(r"(?<![0-9A-Za-z])([acs])[0-9a-f]{16}(?![0-9A-Za-z])")
_KIND: Final = {"a": "activation", "c": "container", "s": "snapshot"}
_NUMBERS: Final = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "<digest>"),
    (re.compile(r"(?i)\b(pid )\d+"), r"\1<pid>"),
    (re.compile(r"\b\d+ bytes"), "<n> bytes"),
    (re.compile(r"\(\d+ tr(?:y|ies);"), "(<n> tries;"),
)
_FACTS: Final = frozenset({"ContainerExited", "SandboxDied"})
_STARTS: Final = frozenset({"SandboxCreated", "SandboxRestored"})


@attrs.frozen(kw_only=True)
class Sight:
    """What was seen when the actor rested after a deed.

    Attributes:
        deed: which one.
        answer: what the deed answered.
        status: the status, of which the file says the same.
        way: transitions and marks of the journal since the deed before.
        exits: the exits that are in it, which may come in any order.
        names: of all files and directories of the actor, of its sandbox and of what was refused.
        logs: what each container has written, in words.
        manifests: of its snapshots.
        has_processes: whether any belongs to a sandbox.
    """

    deed: str
    answer: Any
    status: Any
    way: list[Any]
    exits: list[Any]
    names: list[str]
    logs: dict[str, Any]
    manifests: dict[str, Any]
    has_processes: bool

    def differences(self, other: Sight) -> Iterator[str]:
        """Each field in which another one differs."""
        for field in attrs.fields_dict(Sight):
            one, another = getattr(self, field), getattr(other, field)
            if one != another:
                yield f"{field}:\n    fake {_alone(one, another)}\n    real {_alone(another, one)}"


@attrs.define
class Sights:
    """Looks at one life, again and again."""

    state: StateDir
    runsc: Path
    uid: str
    life: Life
    seen: list[Sight] = attrs.field(factory=list, init=False)
    _journal: bytes = attrs.field(default=b"", init=False)
    _names: dict[str, str] = attrs.field(factory=dict, init=False)
    _saved: dict[str, list[int]] = attrs.field(factory=dict, init=False)

    @property
    def directory(self) -> ActorDir:
        return self.state.actor(self.uid)

    def told(self) -> int:
        """How many facts about the sandbox stand in the journal."""
        lines = map(orjson.loads, self._read_journal().splitlines())
        return sum(line.get("event", {}).get("type") in _FACTS for line in lines)

    def is_restored(self) -> bool:
        """Whether the sandbox that lives was restored from a snapshot."""
        lines = map(orjson.loads, self._read_journal().splitlines())
        starts = [event["type"] for line in lines if (event := line.get("event")) and event["type"] in _STARTS]
        return starts[-1:] == ["SandboxRestored"]

    def bases(self) -> int:
        """How often the journal has begun with the whole memory."""
        return sum("base" in orjson.loads(line) for line in self._read_journal().splitlines())

    def look(self, deed: object, answer: object, status: dict[str, Any]) -> None:
        """Look at everything."""
        self._name_containers()
        lines = self._new_lines()
        exits, way = self._way(lines)
        written = orjson.loads(self.directory.status.read_bytes())
        told = {name: value for name, value in status.items() if name != "usage"}
        assert {**written, "v": None} == {**told, "v": None}, "the file says something else than the worker"
        sight = Sight(
            deed=repr(deed),
            way=way,
            exits=exits,
            answer=self._plain(answer),
            status=self._plain(status),
            names=sorted(map(self._plain, wait_until(self._names_at_rest))),
            logs=self._logs(),
            manifests=self._manifests(),
            has_processes=bool(pids_below(self.state.root)),
        )
        if sight.status["state"] == "Suspended":
            self._remember_counts()
        if sight.status["state"] != "Running":
            assert not sight.has_processes, "a process is left"
            assert not list(self.state.sandboxes.iterdir()), "a sandbox is left"
        self.seen.append(sight)

    # ------------------------------------------------------------------------------------------------------ journal

    def _read_journal(self) -> bytes:
        """Its whole lines: the last one may be just being written."""
        whole, newline, _ = self.directory.journal.read_bytes().rpartition(b"\n")
        return whole + newline

    def _new_lines(self) -> list[dict[str, Any]]:
        """What was appended since; all of it when another life has begun."""
        before, self._journal = self._journal, self._read_journal()
        new = self._journal.removeprefix(before)
        return [orjson.loads(line) for line in new.splitlines()]

    def _way(self, lines: list[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
        way: list[Any] = []
        exits: list[Any] = []
        for line in lines:
            event = line.get("event", {})
            if event.get("type") == "ContainerExited":
                exits.append(self._plain(event))
                if line["from"] == line["to"]:
                    continue
                if self._ends_at_once(event["container"]):
                    self._forget_the_moment(way, line)
            elif "base" in line and any(isinstance(each, Ending) for each in self.life.containers):
                del line["base"]["ending"]  # where a rollback would lead, which hangs on the same chance
            way.append(self._plain(line))
        return sorted(exits, key=repr), way

    def _ends_at_once(self, container: str) -> bool:
        return isinstance(self.life.containers[int(container[1:])], Ending)

    def _forget_the_moment(self, way: list[Any], line: dict[str, Any]) -> None:
        """Whether what ends at once has ended before or after the actor was verified is chance."""
        if line["from"] == "Running" and way and way[-1].get("to") == "Running":
            way.pop()
        line["from"] = "Verifying"
        line["event"] = {"type": "ContainerExited"}
        line["commands"] = [each for each in line["commands"] if each["type"] != "CancelStep"]

    # -------------------------------------------------------------------------------------------------------- files

    def _names_at_rest(self) -> list[str] | None:
        """All names; none as long as a file is being replaced."""
        places = (self.directory.root, self.state.sandboxes, self.state.refused)
        names = [str(path.relative_to(self.state.root)) for place in places for path in place.rglob("*")]
        if any(name.endswith(".tmp") for name in names):
            return None
        # The log of a question that is still open, or asked again: when a gofer is gone and its container is not.
        return [name for name in names if not name.endswith("-wait.log")]

    def _manifests(self) -> dict[str, Any]:
        found = {}
        for path in self.directory.snapshots.glob("*/manifest.json"):
            try:
                manifest = orjson.loads(path.read_bytes())
            except orjson.JSONDecodeError:
                found[self._plain(path.parent.name)] = "garbled"
                continue
            for file in manifest["files"]:
                del file["size"], file["blake3"]
            found[self._plain(path.parent.name)] = self._plain(manifest)
        return found

    def _logs(self) -> dict[str, Any]:
        """How much a container wrote whose neighbour could not be started is chance: it was killed at once."""
        if not all(each.starts for each in self.life.containers):
            return {}
        return {name_of(index): self._log(index) for index in range(len(self.life.containers))}

    def _log(self, index: int) -> Any:
        lines = whole_lines(self.directory.log(name_of(index)))
        if not self.life.containers[index].counts:
            return lines
        return [self._beginning(index, number) for number in _beginnings(list(map(int, lines)))]

    def _beginning(self, index: int, number: int) -> str:
        """Where a counter went on, when not with the number after its last one."""
        if number == 0:
            return "anew"
        saved = [name for name, counts in self._saved.items() if counts[index] == number]
        return f"from {saved[-1]}" if saved else f"from {number}, which was never saved"

    def _remember_counts(self) -> None:
        status = orjson.loads(self.directory.status.read_bytes())
        name = self._plain(status["lastGoodSnapshot"]["id"])
        if name not in self._saved:
            counts = range(len(self.life.containers))
            self._saved[name] = [_next_number(whole_lines(self.directory.log(name_of(index)))) for index in counts]

    # -------------------------------------------------------------------------------------------------------- words

    def _name_containers(self) -> None:
        for path in self.state.sandboxes.glob("*/sandbox.json"):
            for name, container in orjson.loads(path.read_bytes())["containers"].items():
                self._names[container] = f"<container {name}>"

    def _plain(self, value: Any) -> Any:
        match value:
            case dict():
                return {key: self._plain(each) for key, each in value.items() if key not in _VARYING}
            case list() | tuple():
                return [self._plain(each) for each in value]
            case str():
                return self._words(value)
            case _:
                return value

    def _words(self, text: str) -> str:
        text = text.replace(str(self.state.root.parent), "<dir>").replace(str(self.runsc), "<runsc>")
        text = _ID.sub(self._named, text)
        for pattern, word in _NUMBERS:
            text = pattern.sub(word, text)
        return text

    def _named(self, found: re.Match[str]) -> str:
        if found[1] == "s" and found[0] not in self._names:
            snapshots = sum(name.startswith("<snapshot") for name in self._names.values())
            self._names[found[0]] = f"<snapshot {snapshots + 1}>"
        return self._names.get(found[0], f"<{_KIND[found[1]]}>")


def _alone(one: Any, another: Any) -> Any:
    """What only this one has, of lists and objects; else all of it."""
    match one, another:
        case list(), list():
            return [each for each in one if each not in another] or one
        case dict(), dict():
            return {key: value for key, value in one.items() if value != another.get(key)}
        case _:
            return one


def _beginnings(numbers: list[int]) -> Iterator[int]:
    last = None
    for number in numbers:
        if last is None or number != last + 1:
            yield number
        last = number


def _next_number(lines: list[str]) -> int:
    return int(lines[-1]) + 1 if lines and lines[-1].isdecimal() else 0
