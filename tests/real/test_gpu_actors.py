"""Two actors with claims on a mock GPU node of four: what each container has, over suspend and resume, to the end.

Everything is real but the silicon: the worker and its GPU monitor, device nodes, libraries, runsc. Nothing is behind
the nodes, and nvidia-ctk is the simulated one.
"""

import json

import pytest

from actors.ports import DriverPlaces
from actors.runsc.nvproxy import Nvproxy
from sim.mock.layout import TOOLKIT
from sim.mock.scripting import apply
from tests.actors.stage import fingerprint
from tests.real.scenery import assignment, counting, running
from tests.real.stage import eventually, open_worker
from tests.sim.mock.nodes import make_node

pytestmark = [pytest.mark.anyio, pytest.mark.runsc]

VERSION = "580.65.06"
MKNOD = "mknod /tmp/node c 195 7 2>&1"
REPORT = f"""
report() {{
    echo dev $(ls -d /dev/nvidia* 2>/dev/null)
    echo env $NVIDIA_VISIBLE_DEVICES $LD_LIBRARY_PATH
    echo links $(ls /run/greenroom/lib 2>/dev/null)
    echo libraries $(ls /usr/lib64 2>/dev/null)
    for each in /run/greenroom/lib/*; do test ! -L $each || test -s $each || echo broken $each; done
    echo mknod $({MKNOD}) and $({MKNOD.replace("/tmp/node c", "/tmp/other b")})
    echo gpus $now
    echo done
}}
now=$(cat /run/greenroom/gpus.json 2>/dev/null); report; before=$now
while :; do
    now=$(cat /run/greenroom/gpus.json 2>/dev/null)
    again=$(cat /run/greenroom/gpus.json 2>/dev/null) # a suspend may come in the middle of a read
    test "$now" != "$again" || test "$now" = "$before" || {{ report; before=$now; }}
    sleep 0.05
done
"""
REFUSED = "mknod: /tmp/node: Operation not permitted and mknod: /tmp/other: Operation not permitted"
PROBE = {"exec": ["sh", "-c", "! mknod /tmp/probed c 195 7 && test ! -e /tmp/probed"], "timeoutSeconds": 60}
"""It passes if what is executed in the container can make no node either."""
CONTROL = ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]
NAMES = ("libcuda", "libcudadebugger", "libnvidia-cfg", "libnvidia-ml", "libnvidia-nvvm", "libnvidia-ptxjitcompiler")
LIBRARIES = [f"{name}.so.{VERSION}" for name in NAMES]
SONAMES = [f"{name}.so.{4 if name == 'libnvidia-nvvm' else 1}" for name in NAMES]


@pytest.fixture
def node(tmp_path, rootfs):
    return make_node(tmp_path / "node", "--gpus=4", "--minors=7,2,5,3", f"--driver={VERSION}")


def container(name, rootfs, claimed):
    claim = {"resources": {"limits": {"nvidia.com/gpu": str(claimed)}}} if claimed else {}
    env = [{"name": "PATH", "value": "/bin"}]
    return running(name, rootfs, "sh", "-c", REPORT, env=env, wakeupProbe=PROBE, **claim)


def claiming(uid, rootfs, **claims):
    return assignment(uid, *(container(name, rootfs, claimed) for name, claimed in claims.items()))


def reports(worker, uid, name):
    """Everything that a container has reported, each report by its first words."""
    told: dict[str, str] = {}
    found = []
    for line in worker.lines(uid, name):
        word, _, rest = line.partition(" ")
        if word == "done":
            found.append(told)
            told = {}
        else:
            told[word] = rest
    return found


async def report(worker, uid, name, count):
    return (await eventually(lambda: (all_of := reports(worker, uid, name))[count - 1 :] and all_of))[-1]


def minors(told):
    """Of the GPUs that a container is told to have, by ordinal: now and at the snapshot."""
    gpus = json.loads(told["gpus"])["gpus"]
    return [(each["now"]["minor"], each["atSnapshot"] and each["atSnapshot"]["minor"]) for each in gpus]


def nodes(paths):
    """Minors of GPUs' nodes, which come with those of the driver."""
    assert set(CONTROL) < set(paths)
    return sorted(int(path.removeprefix("/dev/nvidia")) for path in paths if path not in CONTROL)


def given(worker, uid, name):
    """The nodes of GPUs that runsc was given for a container that lives."""
    for record in worker.state.sandboxes.glob("*/sandbox.json"):
        if json.loads(record.read_bytes())["actor"] == uid:
            config = json.loads((record.parent / "bundles" / name / "config.json").read_bytes())
            return nodes([each["path"] for each in config["linux"]["devices"]])
    raise AssertionError(f"{uid} has no sandbox")


def assert_has_the_driver(told):
    assert told["env"] == "void /run/greenroom/lib"
    assert set(told["libraries"].split()) == set(LIBRARIES)
    assert {*LIBRARIES, *SONAMES} <= set(told["links"].split())
    assert "broken" not in told
    assert told["mknod"] == REFUSED


def settings_on(node):
    here = node.directory
    places = DriverPlaces(dev_root=here, proc_root=here / "proc", driver_root=here / "driver")
    return {"places": places, "toolkit_dir": here / TOOLKIT, "nvproxy": Nvproxy.OFF}


async def holders(worker):
    gpus = (await worker.ask("status"))["worker"]["gpus"]
    return {each["minor"]: each["holder"] and (each["holder"]["uid"], each["holder"]["container"]) for each in gpus}


async def test_two_actors_share_four_gpus_and_none_has_the_other_ones_whatever_happens(tmp_path, rootfs, node):
    before = fingerprint(rootfs)
    async with open_worker(tmp_path, **settings_on(node)) as worker:
        await worker.start(claiming("a", rootfs, trainer=1, eval=1, logger=0))
        await worker.start(claiming("b", rootfs, trainer=2))
        for (uid, name), expected in {
            ("a", "trainer"): [(2, None)], ("a", "eval"): [(3, None)], ("b", "trainer"): [(5, None), (7, None)],
        }.items():  # fmt: skip
            told = await report(worker, uid, name, 1)
            assert minors(told) == expected
            assert nodes(told["dev"].split()) == given(worker, uid, name) == [minor for minor, _ in expected]
            assert_has_the_driver(told)
        logger = await report(worker, "a", "logger", 1)
        assert logger == {"dev": "", "env": "", "links": "", "libraries": "", "mknod": REFUSED, "gpus": ""}

        for uid in ("a", "b"):
            await worker.suspend(uid)
        assert set((await holders(worker)).values()) == {None}
        for uid in ("b", "a"):
            await worker.resume(uid)
        for (uid, name), changed in {
            ("b", "trainer"): [(2, 5), (3, 7)], ("a", "trainer"): [(5, 2)], ("a", "eval"): [(7, 3)],
        }.items():  # fmt: skip
            told = await report(worker, uid, name, 2)
            assert minors(told) == changed
            assert given(worker, uid, name) == [now for now, _ in changed]
            # Measured on runsc 20240729: /dev is part of the image, its names are those of the snapshot.
            assert nodes(told["dev"].split()) == [then for _, then in changed]
            assert_has_the_driver(told)
        assert len(reports(worker, "a", "logger")) == 1
        assert await holders(worker) == {
            2: ("b", "trainer"), 3: ("b", "trainer"), 5: ("a", "trainer"), 7: ("a", "eval"),
        }  # fmt: skip

        node.put(apply(node.state(), "7=lost"))
        status = await worker.reach("a", "Failed")
        assert (status["error"]["reason"], status["error"]["subject"]) == ("GpuLost", "/dev/nvidia7")
        assert (await worker.status("b"))["state"] == "Running"
        assert worker.states("b").count("Running") == 2
        await worker.stop("a")
        await worker.stop("b")
        assert set((await holders(worker)).values()) == {None}
        assert worker.left() == []
    assert fingerprint(rootfs) == before


async def test_what_fails_outside_fails_who_claims_alone_and_passes_without_a_restart(tmp_path, rootfs, node):
    uvm, toolkit, away = node.directory / "dev/nvidia-uvm", node.directory / TOOLKIT, tmp_path / "away"
    claims = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}

    def asked(generation):
        return assignment("a", counting("trainer", rootfs, **claims), generation=generation)

    async def fails(worker, generation):
        await worker.submit(asked(generation))
        error = (await worker.reach("a", "Failed"))["error"]
        assert worker.record()["actor"] == "plain"  # the only one that has a sandbox
        return error["step"], error["reason"]

    toolkit.rename(away)
    async with open_worker(tmp_path, **settings_on(node)) as worker:
        await worker.start(assignment("plain", counting("main", rootfs)))
        assert await fails(worker, 1) == ("generate", "ToolkitNotFound")
        away.rename(toolkit)
        await worker.start(asked(2))
        await worker.stop("a")

        uvm.rename(away)
        assert await fails(worker, 3) == ("generate", "CdiDeviceUnresolved")
        away.rename(uvm)
        await worker.start(asked(4))
        await worker.counted_on("plain", "main")
        assert worker.states("plain").count("Running") == 1
