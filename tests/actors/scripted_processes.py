"""A Processes port that answers by script, for what the driver and the teardown do when the world is difficult."""

from collections.abc import Sequence
from typing import Any

import anyio
import attrs

from actors.ports import Exit, Finished, ProcessIdentity
from tests.actors.doubles import Double


@attrs.define(slots=False)
class RunningProcesses(Double):  # type: ignore[misc]
    """Finds what `running` has: processes that are alive, with their arguments."""

    running: dict[ProcessIdentity, Sequence[str]] = attrs.field(factory=dict, kw_only=True)

    async def is_alive(self, identity):
        return identity in self.running

    async def find(self, *, argument):
        return tuple(identity for identity, arguments in self.running.items() if argument in arguments)

    async def find_arguments(self, *, prefix):
        return tuple(
            (identity, argument)
            for identity, arguments in self.running.items()
            for argument in arguments
            if argument.startswith(prefix)
        )


@attrs.define(slots=False)
class ScriptedProcesses(RunningProcesses):
    """Each command is given to `answer(verb, argv)`, which returns or raises.

    Attributes:
        answer: may be async.
        calls: the words of every command from the verb on.
        argvs: every whole command.
        environments: that of every command.
        outputs: stdout of every command.
        inputs: stdin of every command.
        killed: identities that were killed.
        unkillable: those that do not die.
    """

    answer: Any = None
    calls: list[tuple[str, str]] = attrs.field(factory=list)
    argvs: list[tuple[str, ...]] = attrs.field(factory=list)
    environments: list[dict[str, str]] = attrs.field(factory=list)
    outputs: list[Any] = attrs.field(factory=list)
    inputs: list[Any] = attrs.field(factory=list)
    killed: list[ProcessIdentity] = attrs.field(factory=list)
    unkillable: set[ProcessIdentity] = attrs.field(factory=set)
    scans: int = 0

    async def run(self, argv, *, deadline_s, env, stdin=None, stdout=None, stderr=None, stdout_limit_bytes=1 << 20):
        words = [word for word in argv[1:] if not word.startswith("--")]
        self.calls.append((words[0], words[-1]))
        self.argvs.append(tuple(argv))
        self.environments.append(dict(env))
        self.outputs.append(stdout)
        self.inputs.append(stdin)
        await anyio.lowlevel.checkpoint()
        result: Any = None if self.answer is None else self.answer(words[0], argv)
        if hasattr(result, "__await__"):
            result = await result
        return Finished(exit=Exit(code=0)) if result is None else result

    async def find(self, *, argument):
        self.scans += 1
        await anyio.lowlevel.checkpoint()
        return await super().find(argument=argument)

    async def kill_and_wait(self, identity, *, deadline_s):
        if identity in self.unkillable:
            await anyio.sleep_forever()
        self.killed.append(identity)
        self.running.pop(identity, None)
