"""Gates in the ports: a test closes one, the worker comes to it and waits, and the test does what it came for.

So a moment is forced, not hoped for. A gate is named after what passes it: `before create`, `after pause` for commands
of runsc, `replace manifest.json`, `remove_tree sandboxes` for files. What waits at a gate can be cancelled, as the real
thing can.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import attrs

from actors.ports import Finished, NewDirectory, Ports


@attrs.define
class Gate:
    """One closed gate.

    Attributes:
        skip: how many may pass before it is closed.
        act: what is done at it instead of waiting.
    """

    name: str
    skip: int = 0
    act: Callable[[], None] | None = None
    arrived: anyio.Event = attrs.field(factory=anyio.Event)
    opened: anyio.Event = attrs.field(factory=anyio.Event)

    async def arrival(self, *, within_s: float = 90) -> None:
        """Wait until somebody stands before it."""
        with anyio.fail_after(within_s):
            await self.arrived.wait()

    def open(self) -> None:
        """Let whoever waits go on, and whoever comes."""
        self.opened.set()


@attrs.define
class Gates:
    """All gates, and what has passed any place where one could stand."""

    closed: dict[str, Gate] = attrs.field(factory=dict)
    passed: list[tuple[str, float]] = attrs.field(factory=list)

    def close(self, name: str, *, skip: int = 0) -> Gate:
        """Close a gate; `skip` still pass."""
        self.closed[name] = Gate(name, skip)
        return self.closed[name]

    def on(self, name: str, act: Callable[[], None], *, skip: int = 0) -> None:
        """Do something at that moment, once."""
        self.closed[name] = Gate(name, skip, act)

    async def pass_by(self, name: str) -> None:
        self.passed.append((name, anyio.current_time()))
        gate = self.closed.get(name)
        if gate is None:
            return
        if gate.skip:
            gate.skip -= 1
            return
        gate.arrived.set()
        if gate.act is not None:
            del self.closed[name]
            gate.act()
            return
        await gate.opened.wait()

    def around(self, ports: Ports) -> Ports:
        """The same ports with gates in them."""
        gated: Any = _Files(self, ports.files)  # the rest of the port is passed on, which no type can tell
        return attrs.evolve(ports, processes=_Processes(self, ports.processes), files=gated)


@attrs.frozen
class _Processes:
    """The Processes port; a gate before and after each command of runsc."""

    gates: Gates
    port: Any

    async def run(self, argv: Sequence[str], **options: Any) -> Finished:
        verb = verb_of(argv)
        await self.gates.pass_by(f"before {verb}")
        finished: Finished = await self.port.run(argv, **options)
        await self.gates.pass_by(f"after {verb}")
        return finished

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)


@attrs.frozen
class _Files:
    """The Files port; a gate before each reading and change, named after the file, or after the directory of a tree."""

    gates: Gates
    port: Any

    async def read(self, path: Path, *, limit_bytes: int) -> bytes:
        await self.gates.pass_by(f"read {path.name}")
        data: bytes = await self.port.read(path, limit_bytes=limit_bytes)
        return data

    async def replace(self, path: Path, data: bytes) -> None:
        await self.gates.pass_by(f"replace {path.name}")
        await self.port.replace(path, data)

    async def replace_for_boot(self, path: Path, data: bytes) -> None:
        await self.gates.pass_by(f"replace {path.name}")
        await self.port.replace_for_boot(path, data)

    async def make_tree(self, path: Path, tree: NewDirectory) -> None:
        await self.gates.pass_by(f"make_tree {path.parent.name}")
        await self.port.make_tree(path, tree)

    async def sync_tree(self, path: Path) -> None:
        await self.gates.pass_by(f"sync_tree {path.parent.name}")
        await self.port.sync_tree(path)

    async def remove_tree(self, path: Path) -> None:
        await self.gates.pass_by(f"remove_tree {path.parent.name}")
        await self.port.remove_tree(path)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method: Callable[..., Awaitable[Any]] = getattr(self.port, name)
        return method


def verb_of(argv: Sequence[str]) -> str:
    """The subcommand on a runsc command line: the first word that is no flag."""
    return next((word for word in argv[1:] if not word.startswith("-")), "")
