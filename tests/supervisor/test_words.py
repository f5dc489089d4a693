"""One thing has one name: in the log, in the status, in the journal."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from actors.codec import camel
from actors.runsc.flags import GlobalFlags
from actors.steps.stage import Runtime
from statemachine import commands as c
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations
from supervisor.usage import measured_worker_status
from supervisor.words import WORDS
from tests.fakes.performer import a_problem, failing
from tests.supervisor.stands import STATE, a_stand

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "bind"}
STRUCTLOG = {"event", "log_level"}
"""What capture_logs adds by itself; `event` is the name of the entry there."""


def logged_fields():
    """Every field of every log call in the source, with where it stands."""
    for folder in ("supervisor", "actors"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in LEVELS
                    and "log" in ast.unparse(node.func.value)
                ):
                    for keyword in node.keywords:
                        if keyword.arg:
                            yield f"{path.name}:{node.lineno}", camel(keyword.arg)


def keys_of(value):
    match value:
        case dict():
            for key, inner in value.items():
                yield key
                yield from keys_of(inner)
        case list():
            for inner in value:
                yield from keys_of(inner)


async def a_full_story():
    """Everything that a status can hold, the journal of it, and what was logged."""
    async with a_stand() as stand:
        version: Any = SimpleNamespace(text="release-1")
        stand.worker.runtime = Runtime(
            path=Path("/runsc"), version=version, sha256="", flags=GlobalFlags(), machine="x86_64", greenroom="0"
        )
        stand.worker.refused["x.yaml"] = (a_problem(),)
        await stand.running()
        await operations.suspend(stand.worker, "a1")
        await stand.until(State.SUSPENDED)
        stand.prepare["a2"] = lambda performer: performer.answers.update({c.CreateSandbox: failing()})
        await stand.submit("a2")
        await stand.until(State.FAILED, uid="a2")
        status = await measured_worker_status(stand.worker, boot_id="boot-1")
        journal = [orjson.loads(line) for line in stand.files.content[STATE.actor("a2").journal].splitlines()]
        return orjson.loads(orjson.dumps(status)), journal


def test_every_field_of_the_log_is_in_the_list():
    fields = list(logged_fields())
    assert len(fields) > 30
    assert [f"{where}: {word}" for where, word in fields if word not in WORDS] == []


async def test_every_key_of_the_status_is_in_the_list():
    status, _ = await a_full_story()
    assert set(keys_of(status)) - set(WORDS) == set()


async def test_every_key_of_a_journal_line_is_in_the_list():
    _, journal = await a_full_story()
    assert {key for line in journal for key in line} - set(WORDS) == set()


async def test_everything_that_is_really_logged_is_in_the_list_and_says_what_the_status_says(logs):
    await a_full_story()
    assert {camel(key) for entry in logs for key in entry if key not in STRUCTLOG} - set(WORDS) == set()
    told = {entry["reason"] for entry in logs if "reason" in entry}
    assert told <= {str(reason) for reason in Reason}
    assert {entry["step"] for entry in logs if "step" in entry} <= {str(step) for step in Step}
    states = {entry[key] for entry in logs for key in ("from", "to") if key in entry}
    assert states <= {str(state) for state in State}


async def test_no_word_is_in_the_list_that_nobody_says():
    status, journal = await a_full_story()
    said = {word for _, word in logged_fields()} | set(keys_of(status)) | {key for line in journal for key in line}
    # Of what comes later, or is built up as a dictionary.
    later = {"holder", "mark", "progress", "snapshot", "detail"}
    assert set(WORDS) - said - later == set()
