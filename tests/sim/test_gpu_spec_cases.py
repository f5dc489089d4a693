"""Cases of what goes into a container, with specs that somebody else wrote; each under its number."""

import re

import attrs
import pytest
import trio

from sim.documents import IDLE, actor, container
from sim.engine import run
from sim.lives import claiming
from sim.world.gpus import some_gpus
from sim.world.world import Machine, default_settings
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor.settings import CdiSource
from tests.sim import gpu_pods as pods
from tests.sim.spoiling import put

SETTINGS = attrs.evolve(default_settings(), cdi_source=CdiSource.HOST)
TWO = Machine(gpus=some_gpus(2, minors=(0, 1)), driver=pods.MACHINE.driver)
UUIDS = tuple(gpu.uuid for gpu in TWO.gpus)
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
CUDA = "/usr/lib64/libcuda.so.550.90.07"
HOOKS = (
    "create-symlinks",
    "enable-cuda-compat",
    "update-ldcache",
    "disable-device-node-modification",
    "brand-new-hook",
)
ONE = actor("a1", claiming("main", 1))


def hook(name, **more):
    path = "/usr/bin/nvidia-cdi-hook"
    return {"hookName": "createContainer", "path": path, "args": ["nvidia-cdi-hook", name], **more}


def device(name, *paths):
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}


def spec(*devices, **edits):
    mounts = [
        {"hostPath": path, "containerPath": path, "options": ["ro", "bind"]} for path in (CUDA, "/usr/bin/nvidia-smi")
    ]
    common = {
        "deviceNodes": [{"path": path} for path in CONTROL],
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "CUDA_X=cdi"],
        "mounts": mounts,
        "hooks": [hook("create-symlinks"), hook("create-symlinks")],
        **edits,
    }
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": list(devices), "containerEdits": common}


def of_two():
    nodes = [f"/dev/nvidia{minor}" for minor in (0, 1)]
    by_index = [device(str(index), node) for index, node in enumerate(nodes)]
    by_uuid = [device(uuid, node) for uuid, node in zip(UUIDS, nodes, strict=True)]
    return [*by_index, *by_uuid, device("all", *nodes)]


def play(scenario, document, *, settings=SETTINGS, machine=TWO):
    """Run a scenario where somebody has written this spec."""

    async def with_spec(here):
        put(here, "/etc/cdi/nvidia.json", document)
        await scenario(here)

    run(with_spec, settings=settings, machine=machine)


def given(here, name="main", uid="a1"):
    (found,) = [each.config for each in here.world.execution.given if (each.actor, each.container) == (uid, name)]
    return found


def numbers(config):
    return {each["path"]: (each["type"], each["major"], each["minor"]) for each in config["linux"].get("devices", ())}


def allowed(config):
    rules = config["linux"].get("resources", {}).get("devices", ())
    return [(each["type"], each["major"], each["minor"], each["access"]) for each in rules if each["allow"]]


def environment(config):
    return [each for each in config["process"]["env"] if not each.startswith(("HOME=", "TERM="))]


def said(here, event):
    return [each.fields for each in here.world.hearing.said if each.event == event]


async def up(here, document=ONE):
    await here.submit(document)
    await here.wait(State.RUNNING, document["metadata"]["uid"])
    await trio.sleep(0.5)


def test_case_001_numbers_come_from_the_host_and_each_node_has_its_rule():
    async def scenario(here):
        await up(here)
        expected = {
            "/dev/nvidia0": ("c", 195, 0),
            "/dev/nvidiactl": ("c", 195, 255),
            "/dev/nvidia-uvm": ("c", 511, 0),
            "/dev/nvidia-uvm-tools": ("c", 511, 1),
        }
        assert numbers(given(here)) == expected
        assert sorted(allowed(given(here))) == sorted((*each, "rwm") for each in expected.values())

    play(scenario, spec(*of_two()))


def test_case_001_another_number_in_the_spec_is_a_warning_that_names_both():
    nodes = [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm", "type": "c", "major": 510, "minor": 0}]

    async def scenario(here):
        await up(here)
        assert numbers(given(here))["/dev/nvidia-uvm"] == ("c", 511, 0)
        (warning,) = [each["warning"] for each in said(here, "injected")]
        assert {"/dev/nvidia-uvm", "510:0", "511:0"} <= set(re.split(r"[ ,;]+", warning)), warning

    play(scenario, spec(*of_two(), deviceNodes=nodes))


@pytest.mark.parametrize("names", [slice(0, 5), slice(0, 4), slice(0, 2), slice(2, 4)])
def test_case_002_a_gpu_with_many_names_is_one_gpu_and_everything_is_applied_once(names):
    async def scenario(here):
        await up(here, actor("a1", claiming("main", 2)))
        config = given(here)
        paths = [each["path"] for each in config["linux"]["devices"]]
        assert sorted(paths) == sorted({"/dev/nvidia0", "/dev/nvidia1", *CONTROL})
        destinations = [each["destination"] for each in config["mounts"]]
        assert len(destinations) == len(set(destinations))
        assert [each.partition("=")[0] for each in environment(config)].count("CUDA_X") == 1
        assert (await here.status())["containers"][0]["gpus"] == list(UUIDS)
        assert [each["state"] for each in (await here.ask("status"))["worker"]["gpus"]] == ["Held", "Held"]
        await here.stop()
        assert here.left() == []

    play(scenario, spec(*of_two()[names]))


def test_case_004_a_sidecar_and_pause_get_nothing_and_calls_are_passed_on_all_the_same():
    image = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]

    async def scenario(here):
        await up(here, actor("a1", claiming("trainer", 1), container("logger", IDLE, env=image)))
        assert set(numbers(given(here, "trainer"))) == {"/dev/nvidia0", *CONTROL}
        for name in ("logger", "pause"):
            config = given(here, name)
            assert (numbers(config), "hooks" in config) == ({}, False)
            assert not [each for each in config["mounts"] if "nvidia" in str(each) or "greenroom/lib" in str(each)]
            assert not [each for each in environment(config) if each.startswith(("CUDA_X", "LD_"))]
        assert "NVIDIA_VISIBLE_DEVICES=all" in environment(given(here, "logger"))  # DESIGN: the image's own
        assert environment(given(here, "trainer")).count("NVIDIA_VISIBLE_DEVICES=void") == 1
        creations = [call.argument for call in here.world.ledger.calls if " create " in call.argument]
        assert len(creations) == 3
        assert all("--nvproxy=true" in each for each in creations)
        assert [each["state"] for each in (await here.ask("status"))["worker"]["gpus"]] == ["Held", "Free"]

    play(scenario, spec(*of_two()))


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (
            (device("7", "/dev/nvidia7"), device("all", "/dev/nvidia7")),
            "known are: nvidia.com/gpu=7, nvidia.com/gpu=all",
        ),
        (
            (device(UUIDS[0]), device(UUIDS[1], "/dev/nvidia1")),
            "devices[0].containerEdits: a device must edit something",
        ),
    ],
)
def test_case_006_a_gpu_that_the_spec_does_not_have_fails_at_once_and_says_what_there_is(devices, text):
    async def scenario(here):
        before_s = trio.current_time()
        problem = await pods.fails(
            here, pods.Failure(step=Step.GENERATE, reason=Reason.CDI_DEVICE_UNRESOLVED), document=ONE
        )
        assert text in problem["message"] + problem["detail"]
        assert trio.current_time() - before_s < 5
        assert [each.after for each in here.world.hearing.moves].count("Generating") == 1
        assert here.left() == []

    play(scenario, spec(*devices))


def test_case_014_hooks_that_nobody_reviewed_are_told_of_and_none_is_run():
    hooks = [hook(name, env=["LD_PRELOAD=/x.so"]) for name in HOOKS]
    hooks += [{"hookName": "prestart", "path": "/usr/bin/nvidia-container-runtime-hook", "args": ["x", "prestart"]}]
    hooks += [{"hookName": "createContainer", "path": "/usr/bin/one", "args": ["one"]}]
    link = f"{CUDA.rpartition('/')[2]}::/usr/lib64/libcuda.so"
    older = ["nvidia-ctk", "hook", "create-symlinks", "--link", link]
    hooks += [{"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk", "args": older}]

    async def scenario(here):
        await up(here)
        assert not given(here).get("hooks")
        skipped = [each["name"] for each in said(here, "skipped")]
        assert len(skipped) == len(set(skipped))
        assert set(HOOKS[2:]) < set(skipped)
        assert not set(HOOKS[:2]) & set(skipped)
        assert "/usr/lib64/libcuda.so" in skipped  # the other form was read: what it links to is no library here

    play(scenario, spec(*of_two(), hooks=hooks))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("/opt/app/lib", "/run/greenroom/lib:/opt/app/lib"),
        (None, "/run/greenroom/lib"),
        ("/opt/app/lib:", "/run/greenroom/lib:/opt/app/lib"),
        ("/run/greenroom/lib:/opt", "/run/greenroom/lib:/opt"),
    ],
)
def test_case_016_each_variable_is_there_once_with_its_value_by_precedence(image, expected):
    env = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_X": "image", "PATH": "/bin"}
    env |= {} if image is None else {"LD_LIBRARY_PATH": image}

    async def scenario(here):
        await up(here, actor("a1", claiming("main", 1, env=[{"name": name, "value": env[name]} for name in env])))
        got = environment(given(here))
        assert len({each.partition("=")[0] for each in got}) == len(got)
        assert {
            "NVIDIA_VISIBLE_DEVICES=void", "CUDA_X=cdi", "NVIDIA_CTK=1", "PATH=/bin", f"LD_LIBRARY_PATH={expected}",
        } == set(got)  # fmt: skip

    play(scenario, spec(*of_two(), env=["NVIDIA_VISIBLE_DEVICES=void", "CUDA_X=cdi", "NVIDIA_CTK=1"]))


def test_a_container_without_a_claim_has_the_same_document_with_gpus_on_the_node_and_without():
    def documents(machine):
        found = {}

        async def scenario(here):
            await up(here, actor("a1", container("main", IDLE)))
            for each in here.world.execution.given:
                text = scenery_free(here, each)
                found[each.container] = text

        run(scenario, machine=machine)
        return found

    assert documents(TWO) == documents(Machine())


def scenery_free(here, document):
    """The bytes of a document, but for the names that were drawn by lot."""
    path = here.world.state.sandboxes / document.activation.name / "bundles" / document.container / "config.json"
    return re.sub(rb"\b[ac][0-9a-f]{16}\b", b"ID", here.world.read(path))
