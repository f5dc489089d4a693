"""Secrets that were planted come out nowhere, over whole lives of the real supervisor in the simulated world.

What an actor was given stands in its assignment, which the state directory keeps, and in its bundles. What its own
containers write is theirs. Everything else is looked through: the log, status, journals, manifests, the command line of
every program, what clients are told, metrics and health.
"""

import json
from typing import Any

from sim.documents import IDLE, actor, container
from sim.engine import run
from sim.world.runsc.programs import Program
from sim.world.world import Machine
from statemachine.problem import ProblemError
from statemachine.states import State
from supervisor.status import problem_json
from tests.sim.pages import get

SECRET = "hunter2-hunter2"
ENV = {"env": [{"name": "DATABASE", "value": f"postgres://me:{SECRET}@db/x"}, {"name": "KEY_OF_MINE", "value": SECRET}]}
SAYS = f"connecting with {SECRET}\n"
PROGRAMS: dict[tuple[str, ...], Program] = {
    ("leaks",): Program((("write", SAYS, 1), ("write", SAYS, 2), ("exit", 3)), name="leaks"),
    ("leaks-later",): Program((("write", SAYS, 2), ("sleep", 1.0, True), ("exit", 3)), name="leaks later"),
}
THEIR_OWN = ("/assignment.json", "/logs/")
"""Of the state directory: what was assigned, and what containers wrote."""


def secretive(uid, command=IDLE, *, generation=1, state="Running", probe=None, **spec):
    more = {} if probe is None else {"wakeupProbe": {"exec": [probe], "timeoutSeconds": 2}}
    return actor(uid, container("main", command, **ENV, **more), generation=generation, state=state, **spec)


async def asked(told, awaitable):
    """Ask, and keep what the client is told, whatever it is."""
    try:
        told.append(await awaitable)
    except ProblemError as error:
        told.extend(problem_json(problem) for problem in error.problems)


def where_it_is(record, told):
    """Each place at which the secret came out."""
    places = [f"log: {said}" for said in record.log if SECRET in str(said)]
    places += [f"call: {call.port}.{call.method}" for call in record.calls if SECRET in call.argument]
    places += [
        f"file: {name}"
        for name, text in record.files.items()
        if SECRET in text and not any(each in f"/{name}" for each in THEIR_OWN)
    ]
    return places + [f"told: {each}" for each in told if SECRET in json.dumps(each, default=str)]


def lives(told):
    async def scenario(here):
        hooks = {"preSuspend": {"exec": ["leaks"]}}
        await here.submit(secretive("a1", lifecycle=hooks))
        await here.wait(State.RUNNING, "a1")
        await here.ask("suspend", uid="a1")
        await here.until(State.RUNNING, "a1")  # its hook failed
        await asked(told, here.status("a1"))
        await here.submit(secretive("a1", generation=2))
        await here.suspend("a1")
        await here.resume("a1")

        await here.submit(secretive("a2", ("leaks-later",)))
        await here.wait(State.FAILED, "a2")
        await here.submit(secretive("a3", probe="leaks"))
        await here.until(State.FAILED, "a3")
        await here.submit(secretive("a4", ("no-such-command",)))
        await here.until(State.FAILED, "a4")
        for uri in (f"s3://me:{SECRET}@bucket/x", f"https://me:{SECRET}@host/x", f"s3://bucket/x?token={SECRET}"):
            await asked(told, here.submit(secretive("a5", suspend={"uri": uri})))
            await asked(told, here.submit(secretive("a5", snapshot={"uri": uri})))
        odd = secretive("a6")
        odd["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": [SECRET]}]
        await asked(told, here.submit(odd))
        odd["spec"]["containers"][0]["env"] = [{"name": f"A=token={SECRET}", "value": "x"}]
        await asked(told, here.submit(odd))
        for uid in ("a1", "a2", "a3", "a4"):
            await asked(told, here.status(uid))
        await asked(told, here.ask("status"))
        told.extend([(await get(here, path))[1].decode() for path in ("/metrics", "/readyz", "/healthz")])
        await here.drain()
        told.append({"left": str(here.worker.ended.is_set())})

    return scenario


def test_a_planted_secret_comes_out_nowhere():
    told: list[Any] = []
    record = run(lives(told), machine=Machine(programs=PROGRAMS))
    assert where_it_is(record, told) == []
    # Not because nothing happened: each of these has told, and the secret was there to be told.
    reasons = {each.get("reason") or (each.get("error") or {}).get("reason") for each in told if isinstance(each, dict)}
    assert {"HookFailed", "InvalidValue", "WrongType", "ContainerFailed", "CommandNotFound"} <= reasons
    kept = [text for name, text in record.files.items() if name.endswith("a1/assignment.json")]
    assert kept
    assert all(SECRET in text for text in kept)
    assert any("greenroom_" in each for each in told if isinstance(each, str))
