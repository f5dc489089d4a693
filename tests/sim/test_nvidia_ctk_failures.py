"""nvidia-ctk in the simulated world: how it fails, in the words of the real one."""

import re
from pathlib import Path
from typing import Any

import pytest

from sim.engine import run
from sim.world import scenery
from sim.world.ctk_flags import NotModelledError
from sim.world.nvml import Return, Symbol
from sim.world.world import World
from tests.sim.toolkit import INTO_OUT, OUT, TWO, UUIDS, error_of, generate, minors_of, spec_at


def spoiled(symbol: Symbol, code: Return) -> Any:
    return lambda world: world.gpus.spoil(symbol, code)


DEVICES = "failed to generate CDI spec: failed to create device CDI specs: "
BUILDING = f"{DEVICES}failed to construct device spec generators: "
INIT = f"{BUILDING}failed to initialize NVML: "
EDITORS = f"{BUILDING}failed to get full GPU device editors: "
DISCOVERER = "failed to create device discoverer: "
DISCOVERING = f"{DEVICES}failed to get CDI device edits: {DISCOVERER}{DISCOVERER}"
EMPTY = "failed to write spec: invalid CDI Spec: failed add device"
LOST = Return.GPU_IS_LOST


def remove_all_nodes(world: World) -> None:
    for gpu in world.machine.gpus:
        world.gpus.remove_node(f"nvidia{gpu.minor}")


def nothing(world: World) -> None:
    assert world.gpus.has_driver


FAILURES = {
    "no library": (
        lambda world: world.disk.remove(world.disk.find_directory(Path("/usr/lib64")), "libnvidia-ml.so.1"),
        [],
        f"{INIT}ERROR_LIBRARY_NOT_FOUND",
    ),
    "no driver": (lambda world: world.gpus.unload_driver(), [], f"{INIT}Driver Not Loaded"),
    "another driver": (
        lambda world: world.gpus.upgrade_driver("590.48.01"),
        [],
        f"{INIT}Driver/library version mismatch",
    ),
    "no access": (lambda world: world.gpus.deny_devices(), [], f"{INIT}Unknown Error"),
    "a lost gpu": (
        lambda world: world.gpus.lose(2),
        [],
        f"{EDITORS}error getting device handle for index '1': GPU is lost",
    ),
    "lost as it is counted": (
        spoiled(Symbol.COUNT, Return.UNKNOWN),
        [],
        f"{EDITORS}error getting device count: Unknown Error",
    ),
    "lost at its uuid": (
        spoiled(Symbol.UUID, LOST),
        [],
        f"{EDITORS}error visiting device: failed to get device UUID: GPU is lost",
    ),
    "lost at its mode": (
        spoiled(Symbol.MIG_MODE, LOST),
        [],
        f"{EDITORS}error visiting device: error getting MIG mode: GPU is lost",
    ),
    "lost at its minor": (
        spoiled(Symbol.MINOR, LOST),
        [],
        f"{DISCOVERING}error getting device node path: error getting GPU device minor number: GPU is lost",
    ),
    "lost at its bus": (
        spoiled(Symbol.PCI, LOST),
        [],
        f"{DISCOVERING}error getting PCI info for device: error getting PCI info: GPU is lost",
    ),
    "no gpus": (remove_all_nodes, [], f'{EMPTY} "all": invalid device, empty device edits'),
    "nodes elsewhere": (nothing, ["--dev-root=/nowhere"], f'{EMPTY} "0": invalid device, empty device edits'),
    "an index too high": (
        nothing,
        ["--device-id=9"],
        f"{BUILDING}failed to get device handle from index: Invalid Argument",
    ),
    "a uuid of nobody": (
        nothing,
        ["--device-id=GPU-00000000-0000-4000-8000-000000000009"],
        f"{BUILDING}failed to get device handle from UUID: Not Found",
    ),
    "an instance": (nothing, ["--device-id=0:0"], f"{BUILDING}failed to get MIG handle by index: Not Found"),
    "no id": (nothing, ["--device-id=x"], f'{BUILDING}identifier is not a valid UUID or index: "x"'),
    "one id twice": (
        nothing,
        ["--device-id=0,0"],
        'failed to write spec: invalid CDI Spec: invalid spec, multiple device "0"',
    ),
    "a mode": (nothing, ["--mode=x"], "invalid discovery mode: x"),
    "a strategy": (nothing, ["--device-name-strategy=x"], "invalid device name strategy: x"),
    "a format": (nothing, ["--format=xml"], "invalid output format: xml"),
    "a vendor": (
        nothing,
        ["--vendor=-x"],
        'invalid CDI vendor name: invalid vendor. "-x", should start with letter',
    ),
    "a class": (
        nothing,
        ["--class=a!b"],
        "invalid CDI class name: invalid class. invalid character '!' in name \"a!b\"",
    ),
    "a flag": (nothing, ["--bogus"], "flag provided but not defined: -bogus"),
    "no value": (nothing, ["--vendor"], "flag needs an argument: --vendor"),
}


@pytest.mark.parametrize(("spoil", "flags", "text"), FAILURES.values(), ids=FAILURES)
def test_it_fails_with_the_words_of_the_real_one_and_writes_nothing(spoil, flags, text):
    async def scenario(here):
        spoil(here.world)
        finished = await generate(here, INTO_OUT, *flags)
        assert finished.exit.code == 1
        assert error_of(finished) == text
        assert here.world.files_below(OUT.parent) == {}

    run(scenario, machine=TWO)


def test_to_stdout_a_spec_that_is_none_fails_in_other_words():
    async def scenario(here):
        remove_all_nodes(here.world)
        error = error_of(await generate(here))
        assert error.startswith("failed to write CDI spec to STDOUT: failed to write spec: invalid CDI Spec: ")

    run(scenario, machine=TWO)


def test_with_one_gpu_lost_the_others_are_had_by_name():
    async def scenario(here):
        here.world.gpus.lose(2)
        assert (await generate(here, INTO_OUT, "--device-id=0")).exit.code == 0
        assert set(minors_of(spec_at(here))) == {"0", UUIDS[0], "all"}

    run(scenario, machine=TWO)


def a_file_above(world: World) -> None:
    scenery.put_file(world.disk, OUT.parent)


def read_only(world: World) -> None:
    world.disk.find_directory(Path("/run")).volume.is_read_only = True


def full(world: World) -> None:
    volume = world.disk.find_directory(Path("/run")).volume
    volume.capacity_bytes = volume.used_bytes + 100


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (a_file_above, "failed to create Spec dir: mkdir /run/ctk: not a directory"),
        (read_only, "failed to create Spec dir: mkdir /run/ctk: read-only file system"),
        (full, r"failed to write Spec file: write /run/ctk/spec.\d+.tmp: no space left on device"),
    ],
)
def test_an_output_that_cannot_be_written_is_named(spoil, text):
    async def scenario(here):
        spoil(here.world)
        finished = await generate(here, INTO_OUT)
        assert finished.exit.code == 1
        assert re.fullmatch(f"failed to write spec: {text}", error_of(finished))
        assert "ctk/spec.json" not in here.world.files_below(Path("/run"))

    run(scenario, machine=TWO)


def test_a_full_disk_is_left_with_the_file_that_was_begun():
    async def scenario(here):
        full(here.world)
        await generate(here, INTO_OUT)
        (name,) = here.world.files_below(OUT.parent)
        assert name.startswith("spec.")
        assert name.endswith(".tmp")

    run(scenario, machine=TWO)


def test_a_directory_that_is_absent_is_made():
    async def scenario(here):
        assert (await generate(here, "--output=/run/a/b/spec.json")).exit.code == 0
        assert here.world.disk.find(Path("/run/a/b")).mode == 0o755

    run(scenario, machine=TWO)


def test_what_the_model_does_not_know_ends_the_scenario():
    async def scenario(here):
        await generate(here, "--mode=management")

    with pytest.raises(NotModelledError):
        run(scenario, machine=TWO)
