"""Each test of a contract runs on all that keep it.

Those of runsc on the model, on the fake program and on the real binary; those of the other ports on the real ports and
on the simulated ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sim.world.runsc.settings import Flavour
from tests.actors.stage import make_rootfs
from tests.contract.faces import Face
from tests.contract.places import RealPlace, SimPlace
from tests.needs import Tool, find, need

if TYPE_CHECKING:
    from pathlib import Path

    from actors.ports import Files
    from tests.contract.places import Place

# Each command of a real program costs a process or more: the whole contract runs on them in `make campaign`, and a
# bounded part of it on every face in tests/contract/test_driver_contract.py, where `every_face` is asked for.
STAND_INS = ["model", pytest.param("fake", marks=pytest.mark.campaign)]
REAL = pytest.param("real", marks=[pytest.mark.runsc, pytest.mark.campaign])


@pytest.fixture(params=[*STAND_INS, REAL])
def face(request, tmp_path):
    """One of the three runscs, behaving as the one that was measured."""
    return _face(request, tmp_path)


@pytest.fixture(params=["model", "fake", pytest.param("real", marks=pytest.mark.runsc)])
def every_face(request, tmp_path):
    """As `face`, and on all three in every run of the tests."""
    return _face(request, tmp_path)


def _face(request, tmp_path):
    if request.param != "real":
        return Face(kind=request.param, directory=tmp_path, rootfs=_empty(tmp_path))
    need(Tool.RUNSC, Tool.BUSYBOX, Tool.ROOT, Tool.NAMESPACES)
    rootfs = request.getfixturevalue("contract_rootfs")
    return Face(kind="real", directory=tmp_path, rootfs=str(rootfs), runsc=str(find(Tool.RUNSC)))


@pytest.fixture(params=STAND_INS)
def head(request, tmp_path):
    """The two stand-ins, behaving as the source of 2026, which was read and not run."""
    return Face(kind=request.param, directory=tmp_path, rootfs=_empty(tmp_path), flavour=Flavour.HEAD)


@pytest.fixture(params=STAND_INS)
def stand_in(request, tmp_path):
    """The two stand-ins, behaving as the measured one; the fake one has the real process port around it."""
    return Face(kind=request.param, directory=tmp_path, rootfs=_empty(tmp_path))


@pytest.fixture(scope="session")
def contract_rootfs(tmp_path_factory):
    return make_rootfs(tmp_path_factory.mktemp("contract") / "busybox")


def _empty(tmp_path):
    rootfs = tmp_path / "rootfs"
    rootfs.mkdir()
    return str(rootfs)


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    made = RealPlace(tmp_path) if request.param == "real" else SimPlace.new()
    made.put_directory(made.root)
    return made


@pytest.fixture
async def files(anyio_backend: str, place: Place) -> Files:
    return place.files()
