"""The two sides."""

from pathlib import Path

import pytest

from sim.world.runsc.settings import RunscSettings
from tests.actors.stage import make_rootfs
from tests.contract.benches import write_fake
from tests.differential.comparing import open_both
from tests.needs import Tool, find, need


@pytest.fixture
def both(tmp_path):
    """A worker on the fake runsc and one on the real one."""
    need(Tool.RUNSC, Tool.BUSYBOX, Tool.ROOT, Tool.NAMESPACES)
    fake = write_fake(tmp_path / "fake-runsc", RunscSettings())
    rootfs = make_rootfs(tmp_path / "rootfs")
    with open_both(tmp_path, fake=fake, real=Path(str(find(Tool.RUNSC))), rootfs=rootfs) as both:
        yield both
