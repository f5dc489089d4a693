"""One side of the differential: a worker process with a runsc, which lives one life after the other."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import orjson

from actors.runsc.flags import GlobalFlags
from actors.runsc.log import parse_log
from actors.runsc.teardown import RUNSC_ROOT
from statemachine.problem import ProblemError
from statemachine.states import FINAL, RESTING
from supervisor.status import problem_json
from tests.differential.applications import Ending
from tests.differential.lives import (
    SUCCEEDS,
    Command,
    Crash,
    Deed,
    HangAndStop,
    KillGofer,
    KillSandbox,
    Life,
    NewGeneration,
    OldDocument,
    Restart,
    Signal,
    Spoil,
    name_of,
)
from tests.differential.sights import Sight, Sights
from tests.real.process import WorkerProcess, wait_until
from tests.real.scenery import assignment, running, whole_lines

GRACE_S: Final = 6
_REST: Final = frozenset(map(str, RESTING | FINAL))
_MORE_LINES: Final = 2


@attrs.define
class Side:
    """A worker with its runsc.

    Attributes:
        runsc: the program.
        rootfs: what its containers run on.
        worker: its process.
        on_drain: what it was started with.
    """

    runsc: Path
    rootfs: str
    worker: WorkerProcess
    on_drain: str = "stop"

    @classmethod
    def below(cls, directory: Path, *, runsc: Path, rootfs: str) -> Side:
        directory.mkdir(exist_ok=True)
        return cls(runsc=runsc, rootfs=rootfs, worker=WorkerProcess(directory, ("--runsc", str(runsc))))

    def begin(self, on_drain: str = "stop") -> None:
        self.on_drain = on_drain
        self.worker.begin("--on-drain", on_drain)

    def play(self, uid: str, life: Life) -> list[Sight]:
        """Live a life to its end, and return what was seen of it after each deed."""
        if life.on_drain != self.on_drain:
            self.worker.end()
            self.begin(life.on_drain)
        played = _Played(side=self, uid=uid, life=life, sights=Sights(self.worker.state, self.runsc, uid, life))
        played.live()
        return played.sights.seen

    def give_up(self) -> None:
        self.worker.give_up()


@attrs.define(kw_only=True)
class _Played:
    """A life while it is lived.

    Attributes:
        generation: of the document that was admitted last.
        document: that document.
        working_directory: of its containers; what must not change while an actor lives, and changes nothing here.
    """

    side: Side
    uid: str
    life: Life
    sights: Sights
    generation: int = 1
    document: dict[str, Any] = attrs.field(factory=dict)
    working_directory: str = "/"

    @property
    def worker(self) -> WorkerProcess:
        return self.side.worker

    def live(self) -> None:
        self.document = self._wanting("Running", 1)
        self._see("begin", self._answered(self._submit, self.document))
        for deed in self.life.deeds:
            self._see(deed, self._do(deed))
        self._see("end", self._answered(self.worker.ask, "stop", uid=self.uid))

    def _see(self, deed: object, answer: object) -> None:
        self._come_to_rest()
        self.sights.look(deed, answer, self.worker.ask("status", uid=self.uid))

    # -------------------------------------------------------------------------------------------------------- deeds

    def _do(  # noqa: PLR0911 - a row for each deed
        self, deed: Deed
    ) -> object:
        match deed:
            case Command(op=op):
                return self._answered(self.worker.ask, op, uid=self.uid)
            case NewGeneration():
                return self._renew(deed)
            case OldDocument(how=how):
                return self._answered(self._submit, self._old(how))
            case Signal(container=container, name=name):
                return self._signal(self._index(container), name)
            case KillSandbox(name=name):
                return self._kill("sandbox", name)
            case HangAndStop():
                self._hang()
                return self._answered(self.worker.ask, "stop", uid=self.uid)
            case KillGofer(container=container):
                return self._kill(name_of(self._index(container)), "KILL")
            case Crash():
                return self._succeed(signal.SIGKILL)
            case Restart():
                return self._succeed(signal.SIGTERM)
            case Spoil(how=how):
                return self._spoil(how)

    def _answered(self, what: Callable[..., Any], *arguments: Any, **more: Any) -> object:
        """What came of a request: its result, or why it was refused."""
        try:
            return what(*arguments, **more)
        except ProblemError as error:
            return [problem_json(problem) for problem in error.problems]

    def _submit(self, document: dict[str, Any]) -> object:
        base = str(self.worker.directory)
        answer = self.worker.ask("submit", document=orjson.dumps(document).decode(), base=base)
        if answer["effect"] == "Begun":
            # Until then the file is still that of the life before.
            status = self.worker.state.actor(self.uid).status
            wait_until(lambda: status.exists() and self._status()["generation"] == answer["generation"])
        return answer

    def _wanting(self, wish: str, generation: int, **more: Any) -> dict[str, Any]:
        containers = []
        for index, each in enumerate(self.life.containers):
            fields: dict[str, Any] = {"workingDir": self.working_directory}
            if each.probe:
                # What passes has all the time that a busy machine takes for it.
                timeout_s = 60 if each.probe == SUCCEEDS else 1
                fields["wakeupProbe"] = {"exec": [each.probe], "timeoutSeconds": timeout_s}
            containers.append(running(name_of(index), self.side.rootfs, *each.argv, **fields))
        return assignment(
            self.uid,
            *containers,
            generation=generation,
            desiredState=wish,
            restartPolicy=self.life.restart,
            terminationGracePeriodSeconds=GRACE_S,
            **more,
        )

    def _renew(self, deed: NewGeneration) -> object:
        good = self.worker.ask("status", uid=self.uid)["lastGoodSnapshot"]
        snapshot: dict[str, Any] = {
            "cold": {"snapshot": {"from": None}},
            "good": {"snapshot": {"uri": good["uri"]}} if good else {},
            "missing": {"snapshot": {"uri": (self.worker.directory / "nowhere").as_uri()}},
        }.get(str(deed.snapshot), {})
        before = self.working_directory
        if deed.immutable:
            self.working_directory = {"/": "/tmp", "/tmp": "/"}[before]
        document = self._wanting(deed.wish, self.generation + 1, **snapshot)
        answer = self._answered(self._submit, document)
        if isinstance(answer, dict):
            self.generation, self.document = self.generation + 1, document
        else:
            self.working_directory = before
        return answer

    def _old(self, how: str) -> dict[str, Any]:
        document = self.document
        if how == "changed":
            return {**document, "spec": {**document["spec"], "terminationGracePeriodSeconds": GRACE_S + 1}}
        generation = self.generation - 1 if how == "stale" and self.generation > 1 else self.generation
        return {**document, "metadata": {**document["metadata"], "generation": generation}}

    def _record(self) -> dict[str, Any] | None:
        for path in self.worker.state.sandboxes.glob("*/sandbox.json"):
            record: dict[str, Any] = orjson.loads(path.read_bytes())
            if record["actor"] == self.uid:
                return record
        return None

    def _signal(self, index: int, name: str) -> object:
        record = self._record()
        if record is None:
            return "there is no sandbox"
        if name_of(index) not in record["containers"]:
            return "it had ended before it was saved"
        root = self.worker.state.activation(record["activation"]) / RUNSC_ROOT
        log = self.worker.directory / f"{self.uid}-{len(self.sights.seen)}.log"
        flags = GlobalFlags.from_json(record["runsc"]["flags"]).as_argv(root=root, log=log)
        alive = self._fate(index) is None
        told = self.sights.told()
        argv = [str(self.side.runsc), *flags, "kill", record["containers"][name_of(index)], name]
        code = subprocess.run(argv, capture_output=True, check=False, timeout=60).returncode
        if alive and self.life.containers[index].ended_by(name) is not None:
            wait_until(lambda: self.sights.told() != told)
        return code, parse_log(log.read_bytes())

    def _kill(self, whom: str, name: str) -> object:
        record = self._record()
        if record is None:
            return "there is no sandbox"
        told = self.sights.told()
        identity = record["sandbox"] if whom == "sandbox" else record["gofers"].get(whom)
        if whom != "sandbox" and (identity is None or self._fate(int(whom[1:])) is not None):
            return "there is no such gofer"
        os.kill(identity["pid"], getattr(signal, f"SIG{name}"))
        if whom != "sandbox" and self.sights.is_restored():
            return "nobody misses it"
        wait_until(lambda: self.sights.told() != told)
        return "killed"

    def _hang(self) -> None:
        record = self._record()
        if record is not None:
            os.kill(record["sandbox"]["pid"], signal.SIGSTOP)

    def _succeed(self, signum: int) -> int:
        """End the worker, and wait until its successor has come to the actor."""
        code = self.worker.end(signum)
        before, bases = self._state(), self.sights.bases()
        self.side.begin(self.side.on_drain)
        if before != "Terminated":
            wait_until(lambda: self.sights.bases() > bases)
        return code

    def _spoil(self, how: str) -> object:
        good = self.worker.ask("status", uid=self.uid)["lastGoodSnapshot"]
        if good is None:
            return "there is no snapshot"
        directory = Path(good["uri"].removeprefix("file://"))
        if not directory.is_dir():
            return "it is gone"
        spoil(directory, how)
        return "spoilt"

    # --------------------------------------------------------------------------------------------------------- rest

    def _index(self, container: int) -> int:
        return container % len(self.life.containers)

    def _status(self) -> dict[str, Any]:
        return self.worker.status_file(self.uid)

    def _state(self) -> str:
        return str(self._status()["state"])

    def _fate(self, index: int) -> int | None:
        code: int | None = self._status()["containers"][index]["exitCode"]
        return code

    def _come_to_rest(self) -> None:
        """Wait until nothing goes on: a resting state, and while it runs, all that ends by itself has ended."""
        while True:
            wait_until(self._rests)
            if self._state() != "Running":
                return
            wait_until(partial(self._has_left_or_runs_on, self._lines()))
            if self._rests() and self._state() == "Running":
                return

    def _rests(self) -> bool:
        """Whether it is in a resting state; the file is written a moment after the worker knows, and tells no use."""
        written = self._status()
        told = {**self.worker.ask("status", uid=self.uid), "v": written["v"]}
        del told["usage"]
        return written["state"] in _REST and told == written

    def _has_left_or_runs_on(self, before: list[int]) -> bool:
        return self._state() != "Running" or self._runs_on(before)

    def _runs_on(self, before: list[int]) -> bool:
        status, now = self._status(), self._lines()
        for index, each in enumerate(self.life.containers):
            alive = status["containers"][index]["exitCode"] is None
            if alive and isinstance(each, Ending):
                return False
            if alive and each.counts and now[index] < before[index] + _MORE_LINES:
                return False
        return True

    def _lines(self) -> list[int]:
        directory = self.worker.state.actor(self.uid)
        return [len(whole_lines(directory.log(name_of(index)))) for index in range(len(self.life.containers))]


def spoil(directory: Path, how: str) -> None:
    """Damage a snapshot, in a way that does not depend on what is in it."""
    image = directory / "checkpoint.img"
    match how:
        case "flip" if image.exists():
            with image.open("r+b") as file:
                byte = file.read(1)
                file.seek(0)
                file.write(bytes([byte[0] ^ 0xFF]))
        case "lose":
            (directory / "pages.img").unlink(missing_ok=True)
        case "garble":
            (directory / "manifest.json").write_bytes(b"{")
        case "remove":
            for path in directory.iterdir():
                path.unlink()
            directory.rmdir()
