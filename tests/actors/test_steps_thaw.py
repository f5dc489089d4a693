"""thaw: nothing that hangs keeps a frozen actor frozen, where it can be left behind."""

from pathlib import Path

import anyio
import pytest

from actors.steps.stage import Freeze
from actors.steps.thaw import thaw
from statemachine import events as e
from tests.actors.step_stage import shaped

pytestmark = pytest.mark.anyio


async def test_a_disk_that_does_not_say_how_full_it_is_keeps_no_actor_frozen(monkeypatch):
    monkeypatch.setattr("actors.steps.thaw.ROOM_S", 0.01)
    stage, sandbox, _ = shaped()
    stage.freeze, stage.unproven = Freeze.FROZEN, Path("/state/s1")
    monkeypatch.setattr(stage.ports.files, "free_bytes", lambda _path: anyio.sleep_forever(), raising=False)
    with anyio.fail_after(30, shield=True):
        assert await thaw(stage) == e.Thawed()
    assert (stage.freeze, "thaw" in sandbox.story) == (Freeze.NOT_FROZEN, True)
