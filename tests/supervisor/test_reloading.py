"""SIGHUP: settings that a live worker can change are taken over, others are named, a wrong file changes nothing."""

import signal
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest

from statemachine.actor import OnDrain
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from supervisor.asked_by_signal import answer_signals
from supervisor.cli.worker_options import NAMES
from supervisor.inbox import SignalInbox
from supervisor.reloading import FIELDS, LIVE, Reading, Reloading, config_refused
from tests.supervisor.lives import settled
from tests.supervisor.stands import a_stand
from tests.supervisor.storing import STORE, paused, stored, suspended, uploaded

pytestmark = pytest.mark.anyio

FILE = Path("/etc/greenroom.toml")
BEFORE = {
    "max_actors": 1000, "on_drain": OnDrain.STOP, "drain_timeout": 120.0, "snapshot_store": None, "log_level": "info",
    "network": "none",
}  # fmt: skip


class FakeSource:
    """What a start would be told, with what stands in `says`."""

    path, limit_bytes, values = FILE, 100, BEFORE

    def __init__(self, settings):
        self._settings = settings
        self.says, self.levels = {}, []

    def reading_of(self, data):
        if data == b"wrong":
            raise ProblemError(config_refused(self.path, "it is wrong"))
        values = {**BEFORE, **self.says}
        fields = {FIELDS[name]: value for name, value in values.items() if name in FIELDS}
        return Reading(settings=attrs.evolve(self._settings, **fields), values=values)

    def use_log_level(self, level):
        self.levels.append(level)


@asynccontextmanager
async def a_reloading_stand(data=b""):
    async with a_stand() as stand:
        stand.files.content[FILE] = data
        stand.source = FakeSource(stand.worker.settings)
        stand.reloading = Reloading(stand.files, stand.worker, stand.source)
        yield stand


def told(logs, event):
    return [entry for entry in logs if entry["event"] == event]


def test_what_a_live_worker_changes_are_settings_of_a_worker():
    assert LIVE < NAMES


@pytest.mark.parametrize(
    ("name", "value"), [("max_actors", 1), ("on_drain", OnDrain.SUSPEND), ("drain_timeout", 7.0)], ids=str
)
async def test_a_setting_that_a_live_worker_can_change_is_taken_over_and_named(logs, name, value):
    async with a_reloading_stand() as stand:
        stand.source.says = {name: value}
        await stand.reloading.reload()
        assert getattr(stand.worker.settings, FIELDS[name]) == value
    assert [entry["settings"] for entry in told(logs, "reloaded")] == [[name]]
    assert told(logs, "not_reloaded") == []


async def test_fewer_actors_than_are_here_end_none_and_the_next_is_refused():
    async with a_reloading_stand() as stand:
        await stand.running("a1")
        await stand.running("a2")
        stand.source.says = {"max_actors": 1}
        await stand.reloading.reload()
        assert await stand.refused("a3") == [Reason.WORKER_FULL]
        assert [str(life.actor.state) for life in stand.worker.lives] == ["Running", "Running"]


async def test_a_longer_drain_is_allowed_from_now_on():
    async with a_reloading_stand() as stand:
        stand.source.says = {"drain_timeout": 7.0}
        await stand.reloading.reload()
        assert stand.worker.shutdown.ask() == 7.0


async def test_the_levels_of_the_log_follow_the_file_to_and_fro(logs):
    async with a_reloading_stand() as stand:
        for says in ({"log_level": "debug"}, {"log_level": "debug"}, {}):
            stand.source.says = says
            await stand.reloading.reload()
        assert stand.source.levels == ["debug", "info"]
    assert [entry["settings"] for entry in told(logs, "reloaded")] == [["log_level"], [], ["log_level"]]


async def test_what_only_a_restart_changes_is_named_each_time_and_the_rest_is_taken_over(logs):
    async with a_reloading_stand() as stand:
        stand.source.says = {"max_actors": 5, "network": "host"}
        await stand.reloading.reload()
        assert (stand.worker.settings.max_actors, stand.worker.settings.network) == (5, "none")
        await stand.reloading.reload()
    entries = told(logs, "not_reloaded")
    assert [(entry["reason"], entry["settings"]) for entry in entries] == [("RestartNeeded", ["network"])] * 2
    assert [entry["settings"] for entry in told(logs, "reloaded")] == [["max_actors"], []]


async def test_a_store_that_is_named_now_gets_what_was_saved_before_and_one_that_is_named_no_more_gets_nothing(
    monkeypatch,
):
    paused(monkeypatch)
    async with a_reloading_stand() as stand:
        snapshot = await suspended(stand, spec__suspend={})
        await stand.reloading.reload()
        assert stand.worker.uploads.left == ()
        stand.source.says = {"snapshot_store": STORE}
        await stand.reloading.reload()
        await uploaded(stand)
        assert stored(stand) == [snapshot.id]
        stand.source.says = {}
        await stand.reloading.reload()
        assert stand.worker.settings.snapshot_store is None


@pytest.mark.parametrize("data", [b"wrong", b"x" * 101, None])
async def test_a_file_that_is_wrong_too_large_or_gone_changes_nothing_and_is_told(logs, data):
    async with a_reloading_stand(data) as stand:
        if data is None:
            del stand.files.content[FILE]
        before = stand.worker.settings
        stand.source.says = {"max_actors": 5, "log_level": "debug"}
        await stand.reloading.reload()
        assert (stand.worker.settings, stand.source.levels) == (before, [])
    (entry,) = told(logs, "not_reloaded")
    assert (entry["reason"], bool(entry["hint"])) == ("ConfigRefused", True)
    assert told(logs, "reloaded") == []


async def test_without_a_file_there_is_nothing_to_reload_and_the_directory_is_looked_at_all_the_same(logs):
    async with a_reloading_stand() as stand:
        looked = []
        reloading = Reloading(stand.files, stand.worker, None)
        reloading.intake = type("Intake", (), {"look_again": lambda _: looked.append(1)})()
        await reloading.reload()
        assert looked == [1]
    assert [entry["reason"] for entry in told(logs, "not_reloaded")] == ["NothingToReload"]


async def test_what_the_worker_does_is_shown_while_the_file_of_settings_hangs(logs, monkeypatch):
    async with a_reloading_stand() as stand:
        inbox, begun, ended = SignalInbox(), anyio.Event(), []

        async def read(*_arguments, **_options):
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(1)

        monkeypatch.setattr(stand.files, "read", read)
        async with anyio.create_task_group() as group:
            group.start_soon(answer_signals, inbox, stand.worker, stand.reloading)
            inbox.put(signal.SIGHUP)
            await begun.wait()
            inbox.put(signal.SIGUSR1)
            await settled()
            assert (len(told(logs, "asked")), ended) == (1, [])
            group.cancel_scope.cancel()


async def test_a_fault_in_one_answer_costs_the_next_one_nothing(logs, monkeypatch):
    async with a_reloading_stand() as stand:
        inbox, asked = SignalInbox(), []

        async def reload():
            asked.append(1)
            if len(asked) == 1:
                raise ZeroDivisionError("a fault of ours")

        monkeypatch.setattr(stand.reloading, "reload", reload)
        async with anyio.create_task_group() as group:
            group.start_soon(answer_signals, inbox, stand.worker, stand.reloading)
            inbox.put(signal.SIGHUP)
            inbox.put(signal.SIGHUP)
            await settled()
            group.cancel_scope.cancel()
        assert asked == [1, 1]
    assert [entry["reason"] for entry in told(logs, "fault")] == ["Internal"]
