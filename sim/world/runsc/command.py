"""What every subcommand works with: the flags, the state files, the locks and the sandbox's ear."""

from __future__ import annotations

from typing import Any, Final

import attrs
import orjson

from . import state_files
from .machine import Answer, Ask, Completion, Handle, Invocation, Lock, Machine, RunscError, Steps, Unlock
from .settings import Flavour, RunscSettings
from .state_files import AmbiguousError, FullId, State
from .words import Words

CREATED, RUNNING, PAUSED, STOPPED = "created", "running", "paused", "stopped"
DONE: Final = Completion(code=0)


@attrs.frozen(kw_only=True)
class Command:
    """One subcommand being run.

    Attributes:
        machine: what it can do at once.
        settings: which runsc it is.
        invocation: how it was called.
        words: the same, read.
    """

    machine: Machine
    settings: RunscSettings
    invocation: Invocation
    words: Words

    @property
    def root(self) -> str:
        """Where its state files are."""
        return self.words.flags.get("root", "/var/run/runsc")

    @property
    def is_r24(self) -> bool:
        """Whether it behaves as the measured release."""
        return self.settings.flavour is Flavour.R24

    @property
    def overlay2(self) -> str:
        """Where writes to a rootfs go; `root:self` is a file in the rootfs itself."""
        return self.words.flags.get("overlay2", "root:self")

    @property
    def stdio(self) -> tuple[Handle, Handle]:
        """The caller's own."""
        return self.invocation.stdout, self.invocation.stderr

    def boot_flags(self) -> dict[str, str]:
        """Return the flags that an image remembers."""
        flags = self.words.flags
        return {
            "overlay2": self.overlay2,
            "network": flags.get("network", "sandbox"),
            "platform": flags.get("platform", "systrap"),
            "oci-seccomp": flags.get("oci-seccomp", "false"),
            "restore-spec-validation": flags.get("restore-spec-validation", "enforce"),
        }

    def names(self) -> tuple[str, ...]:
        """Names in runsc's root."""
        return tuple(self.machine.names(self.root))

    # ------------------------------------------------------------------------------------------------------ containers

    def find(self, container_id: str, *, doing: str = "loading container") -> FullId:
        """Find a container by a prefix of its id.

        Raises:
            RunscError: there is none, or several.
        """
        try:
            found = state_files.find(self.names(), container_id)
        except AmbiguousError as error:
            raise RunscError(f"{doing}: {error}") from None
        if found is None:
            fetch = "" if self.is_r24 else "FetchSpec failed: "
            raise RunscError(f"{fetch}{doing}: file does not exist")
        return found

    def load(self, container_id: str, *, doing: str = "loading container") -> Steps[State]:
        """Find a container and see whether it is still what its state file says.

        Raises:
            RunscError: there is none, or several.
        """
        return (yield from self.load_exactly(self.find(container_id, doing=doing), doing=doing))

    def load_exactly(self, full_id: FullId, *, doing: str = "loading container") -> Steps[State]:
        """Load one container under its lock, which is given back."""
        yield Lock(full_id.path(self.root, "lock"))
        try:
            state = State.decode(self.machine.read(full_id.path(self.root)))
            yield from self._check(state)
        except FileNotFoundError:
            yield Unlock(full_id.path(self.root, "lock"))
            raise RunscError(f"{doing}: file does not exist") from None
        except (KeyError, TypeError, ValueError) as error:
            yield Unlock(full_id.path(self.root, "lock"))
            raise RunscError(f"{doing}: reading container metadata: {error}") from None
        yield Unlock(full_id.path(self.root, "lock"))
        return state

    def _check(self, state: State) -> Steps[None]:
        """See what has become of it. Measured: a paused one is believed without a look, even when it is dead."""
        if state.status not in {CREATED, RUNNING}:
            return
        if not self.is_there(state.pid):
            state.status = STOPPED
        elif state.status == RUNNING:
            answer = yield self.question(state, "ContainerRuntimeState")
            if answer.result == STOPPED:
                state.status = STOPPED

    def is_there(self, pid: int) -> bool:
        """Whether a sandbox is there: for R24 a zombie is."""
        return self.machine.is_there(pid) if self.is_r24 else self.machine.is_running(pid)

    def save(self, state: State) -> None:
        """Write a state file."""
        self.machine.replace(state.id.path(self.root), state.encode())

    def forget(self, full_id: FullId) -> None:
        """Remove what runsc knows of a container."""
        self.machine.remove(full_id.path(self.root))
        self.machine.remove(full_id.path(self.root, "lock"))

    def lock(self, state: State) -> Lock:
        """What is to be yielded to hold a container for the rest of the command."""
        return Lock(state.id.path(self.root, "lock"))

    def require(self, state: State, what: str, *allowed: str) -> None:
        """Refuse a container in another state.

        Raises:
            RunscError: it is.
        """
        if state.status not in allowed:
            raise RunscError(f'{what} container "{state.id.container}" in state {state.status}')

    # --------------------------------------------------------------------------------------------------------- asking

    def ask(self, state: State, method: str, failing: str, **argument: Any) -> Steps[Any]:
        """Ask a container's sandbox, and return the result.

        Args:
            state: the container.
            method: see `questions`.
            failing: how the error's text begins.
            argument: what the method wants beside the id.

        Raises:
            RunscError: the sandbox is dead, died meanwhile, or said no.
        """
        return (yield from self.ask_with(state, method, failing, (), **argument))

    def ask_with(
        self, state: State, method: str, failing: str, stdio: tuple[Handle, ...], **argument: Any
    ) -> Steps[Any]:
        """Ask, handing over stdio."""
        answer: Answer = yield self.question(state, method, stdio, **argument)
        if answer.refused:
            has_socket = state_files.socket_path("", state.id.sandbox)[1:] in self.names()
            how = "connection refused" if has_socket else "no such file or directory"
            raise RunscError(f"{failing}: connecting to control server at PID {state.pid}: {how}")
        if answer.eof:
            raise RunscError(f'{failing}: urpc method "containerManager.{method}" failed: EOF')
        if answer.error is not None:
            raise RunscError(f"{failing}: {answer.error}")
        return answer.result

    def question(self, state: State, method: str, stdio: tuple[Handle, ...] = (), **argument: Any) -> Ask:
        """What is to be yielded to ask without judging the answer."""
        address = state_files.socket_path(self.root, state.id.sandbox)
        return Ask(state.pid, address, method, {"id": state.id.container, **argument}, stdio)


def says(document: Any, *, newline: bool = True) -> Completion:
    """Succeed with JSON on stdout."""
    return Completion(code=0, stdout=orjson.dumps(document) + (b"\n" if newline else b""))
