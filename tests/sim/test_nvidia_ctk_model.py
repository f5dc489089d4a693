"""nvidia-ctk in the simulated world: what it writes, and that a run of it is a process like any other."""

import signal
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio
import yaml

from actors.ports import DeadlineExceededError
from sim.engine import run
from sim.faults import Fault, Hang, When
from sim.world import scenery
from sim.world.gpus import Driver, Gpu, Toolkit, some_gpus
from sim.world.nvml import Symbol, Trouble
from sim.world.world import Machine
from tests.sim.toolkit import INTO_OUT, OUT, TWO, UUIDS, call, error_of, generate, minors_of, spec_at


def test_it_tells_its_version():
    async def scenario(here):
        finished = await call(here, "--version")
        assert finished.stdout.startswith(b"NVIDIA Container Toolkit CLI version 1.19.1\ncommit: ")
        assert finished.exit.code == 0

    run(scenario, machine=Machine(gpus=some_gpus(1), toolkit=Toolkit(version="1.19.1")))


def test_a_spec_has_devices_by_index_and_uuid_and_all_and_the_common_edits():
    async def scenario(here):
        finished = await generate(here, INTO_OUT)
        assert (finished.exit.code, finished.stdout) == (0, b"")
        specs.append(here.world.read(OUT))
        assert here.world.disk.find(OUT).mode == 0o644

    specs: list[bytes] = []
    run(scenario, machine=TWO)
    spec = orjson.loads(specs[0])
    assert list(spec) == ["cdiVersion", "kind", "devices", "containerEdits"]
    assert (spec["cdiVersion"], spec["kind"]) == ("0.5.0", "nvidia.com/gpu")
    assert minors_of(spec) == {
        "0": ["/dev/nvidia3"],
        "1": ["/dev/nvidia2"],
        UUIDS[0]: ["/dev/nvidia3"],
        UUIDS[1]: ["/dev/nvidia2"],
        "all": ["/dev/nvidia2", "/dev/nvidia3"],
    }
    (node,) = spec["devices"][0]["containerEdits"]["deviceNodes"]
    assert node == {"path": "/dev/nvidia3", "major": 195, "minor": 3, "fileMode": 0o666, "permissions": "rwm"}
    edits = spec["containerEdits"]
    assert edits["env"] == ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64", "NVIDIA_VISIBLE_DEVICES=void"]
    # Like the real one: no type anywhere, and no minor where it is 0.
    assert edits["deviceNodes"] == [
        {"path": "/dev/nvidia-uvm", "major": 511, "fileMode": 0o666, "permissions": "rwm"},
        {"path": "/dev/nvidia-uvm-tools", "major": 511, "minor": 1, "fileMode": 0o666, "permissions": "rwm"},
        {"path": "/dev/nvidiactl", "major": 195, "minor": 255, "fileMode": 0o666, "permissions": "rwm"},
    ]
    assert [hook["args"] for hook in edits["hooks"]] == [
        [
            "nvidia-cdi-hook",
            "create-symlinks",
            "--link",
            "libcuda.so.1::/usr/lib64/libcuda.so",
            "--link",
            "libcuda.so.580.65.06::/usr/lib64/libcuda.so.1",
            "--link",
            "libnvidia-ml.so.580.65.06::/usr/lib64/libnvidia-ml.so.1",
            "--link",
            "libnvidia-ml.so.1::/usr/lib64/libnvidia-ml.so",
            "--link",
            "libnvidia-ptxjitcompiler.so.580.65.06::/usr/lib64/libnvidia-ptxjitcompiler.so.1",
        ],
        ["nvidia-cdi-hook", "enable-cuda-compat", "--host-driver-version=580.65.06"],
        ["nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"],
        ["nvidia-cdi-hook", "disable-device-node-modification"],
        ["nvidia-cdi-hook", "update-application-profile"],
    ]
    assert edits["mounts"][0] == {
        "hostPath": "/usr/bin/nvidia-smi",
        "containerPath": "/usr/bin/nvidia-smi",
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    }
    assert [mount["hostPath"] for mount in edits["mounts"][1:]] == [
        "/usr/lib64/libcuda.so.580.65.06",
        "/usr/lib64/libnvidia-ml.so.580.65.06",
        "/usr/lib64/libnvidia-ptxjitcompiler.so.580.65.06",
    ]


def test_what_is_below_a_root_is_below_the_root_of_the_container():
    async def scenario(here):
        finished = await generate(here, INTO_OUT, "--driver-root=/opt/driver", "--dev-root=/host")
        assert finished.exit.code == 0, finished.stderr
        spec = spec_at(here)
        (node,) = spec["devices"][0]["containerEdits"]["deviceNodes"]
        assert (node["path"], node["hostPath"]) == ("/dev/nvidia0", "/host/dev/nvidia0")
        mount = spec["containerEdits"]["mounts"][-1]
        assert mount["hostPath"] == f"/opt/driver{mount['containerPath']}"

    driver = Driver(root=Path("/opt/driver"), dev_root=Path("/host"))
    run(scenario, machine=Machine(gpus=some_gpus(1), driver=driver))


def test_in_a_pod_the_search_path_leads_to_the_driver_and_PATH_to_its_programs():  # noqa: N802 - a variable's name
    async def scenario(here):
        without = await generate(here, INTO_OUT)
        assert error_of(without).endswith("failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND")
        path = f"--library-search-path={driver.libraries}"
        finished = await generate(here, INTO_OUT, path, PATH="/usr/local/nvidia/bin:/usr/bin")
        assert finished.exit.code == 0, finished.stderr
        mounts = spec_at(here)["containerEdits"]["mounts"]
        assert {mount["hostPath"].rpartition("/")[0] for mount in mounts} == {
            "/usr/local/nvidia/bin",
            "/usr/local/nvidia/lib64",
        }

    driver = Driver(libraries=Path("/usr/local/nvidia/lib64"), binaries=Path("/usr/local/nvidia/bin"))
    run(scenario, machine=Machine(gpus=some_gpus(1), driver=driver))


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (["--device-name-strategy=uuid"], [*UUIDS, "all"]),
        (["--device-name-strategy", "index", "--no-all-device"], ["0", "1"]),
        (["--device-name-strategy=type-index"], ["all", "gpu0", "gpu1"]),
        (["--device-id=1"], ["1", UUIDS[1], "all"]),
        ([f"--device-id={UUIDS[0]}"], ["0", UUIDS[0], "all"]),
        (["--devices=1,0"], ["0", "1", *UUIDS, "all"]),
    ],
)
def test_devices_are_named_and_chosen_by_flags(flags, names):
    async def scenario(here):
        assert (await generate(here, INTO_OUT, *flags)).exit.code == 0
        assert [device["name"] for device in spec_at(here)["devices"]] == names

    run(scenario, machine=TWO)


def test_names_are_sorted_as_text_and_ten_comes_before_two():
    async def scenario(here):
        await generate(here, INTO_OUT, "--device-name-strategy=index", "--no-all-device")
        assert [device["name"] for device in spec_at(here)["devices"]] == sorted(map(str, range(12)))

    run(scenario, machine=Machine(gpus=some_gpus(12)))


@pytest.mark.parametrize(
    ("flags", "path", "begins"),
    [
        ([f"--output={OUT}"], OUT, b'{"cdiVersion":'),
        (["--output=/run/ctk/spec.yaml"], Path("/run/ctk/spec.yaml"), b"---\n"),
        (["--output=/run/ctk/spec"], Path("/run/ctk/spec.yaml"), b"---\n"),
        (["--output=/run/ctk/spec", "--format=json"], Path("/run/ctk/spec.json"), b'{"cdiVersion":'),
        (["--output=/run/ctk/spec.yml"], Path("/run/ctk/spec.yml.yaml"), b"---\n"),
        (["--output=/run/ctk/spec.yaml", "--format=json"], Path("/run/ctk/spec.yaml"), b"---\n"),
    ],
)
def test_the_extension_of_the_output_decides_what_is_written(flags, path, begins):
    async def scenario(here):
        assert (await generate(here, *flags)).exit.code == 0
        assert list(here.world.files_below(path.parent)) == [path.name]
        assert here.world.read(path).startswith(begins)
        assert spec_at(here, path)["devices"][0]["name"] == "0"

    run(scenario, machine=TWO)


def test_without_an_output_it_goes_to_stdout():
    async def scenario(here):
        as_yaml, as_json = await generate(here), await generate(here, "--format=json")
        assert yaml.safe_load(as_yaml.stdout) == orjson.loads(as_json.stdout)

    run(scenario, machine=TWO)


def test_a_gpu_in_mig_mode_is_left_out_unless_it_is_asked_for():
    async def scenario(here):
        await generate(here, INTO_OUT)
        assert minors_of(spec_at(here)) == {"1": ["/dev/nvidia1"], "GPU-b": ["/dev/nvidia1"], "all": ["/dev/nvidia1"]}
        await generate(here, INTO_OUT, "--device-id=0")
        assert minors_of(spec_at(here)) == {"0": ["/dev/nvidia0"], "GPU-a": ["/dev/nvidia0"], "all": ["/dev/nvidia0"]}

    split = Gpu(uuid="GPU-a", minor=0, pci_bus_id="00000000:3B:00.0", is_in_mig_mode=True)
    whole = Gpu(uuid="GPU-b", minor=1, pci_bus_id="00000000:3C:00.0")
    run(scenario, machine=Machine(gpus=(split, whole)))


def test_nodes_of_the_driver_that_are_missing_are_only_a_warning():
    async def scenario(here):
        here.world.gpus.remove_node("nvidia-uvm")
        finished = await generate(here, INTO_OUT)
        assert finished.exit.code == 0
        assert b'level=warning msg="Could not locate /dev/nvidia-uvm: /dev/nvidia-uvm: not found"' in finished.stderr
        paths = [node["path"] for node in spec_at(here)["containerEdits"]["deviceNodes"]]
        assert paths == ["/dev/nvidia-uvm-tools", "/dev/nvidiactl"]

    run(scenario, machine=TWO)


# ---- its environment


def test_a_variable_of_the_pod_changes_what_is_generated():
    async def scenario(here):
        env = {"NVIDIA_CTK_CDI_GENERATE_DISABLED_HOOKS": "all", "NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS": "1"}
        await generate(here, INTO_OUT, **env)
        assert "hooks" not in spec_at(here)["containerEdits"]
        assert set(minors_of(spec_at(here))) == {"1", UUIDS[1], "all"}

    run(scenario, machine=TWO)


def test_a_foreign_spec_beside_the_output_can_make_it_panic():
    async def scenario(here):
        scenery.put_file(here.world.disk, OUT.with_name("other.yaml"), b"cdiVersion: 0.5.0\nkind: vendor.com/x\n")
        finished = await generate(here, INTO_OUT)
        assert finished.exit.code == 2
        assert b"panic: runtime error: slice bounds out of range" in finished.stderr
        assert (await generate(here, TMPDIR=str(OUT.parent))).exit.code == 2
        assert (await generate(here, "--output=/run/private/spec.json")).exit.code == 0

    run(scenario, machine=TWO)


# ---- a program of the machine


def test_the_toolkit_can_be_mounted_late():
    async def scenario(here):
        with pytest.raises(FileNotFoundError):
            await call(here, "--version")
        here.world.gpus.mount_toolkit()
        assert (await call(here, "--version")).exit.code == 0

    run(scenario, machine=Machine(gpus=some_gpus(1), toolkit=Toolkit(is_mounted=False)))


def test_a_program_that_is_not_executable_is_refused():
    async def scenario(here):
        disk = here.world.disk
        disk.change_mode(disk.find(here.world.gpus.toolkit.program), 0o644)
        with pytest.raises(PermissionError):
            await call(here, "--version")

    run(scenario, machine=TWO)


def test_the_wrapper_needs_a_shell():
    async def scenario(here):
        argv = [str(here.world.gpus.toolkit.wrapper), "--version"]
        with pytest.raises(FileNotFoundError):
            await here.worker.ports.processes.run(argv, deadline_s=5, env={})
        scenery.put_file(here.world.disk, Path("/bin/sh"), mode=0o755)
        assert (await here.worker.ports.processes.run(argv, deadline_s=5, env={})).exit.code == 0

    run(scenario, machine=TWO)


def test_it_takes_its_time():
    async def scenario(here):
        finished = await generate(here, INTO_OUT)
        assert finished.elapsed_s == pytest.approx(0.030)

    run(scenario, machine=TWO)


def test_it_hangs_with_the_library_and_the_deadline_ends_it():
    async def scenario(here):
        here.world.gpus.spoil(Symbol.COUNT, Trouble.HANG)
        before_s = trio.current_time()
        with pytest.raises(DeadlineExceededError):
            await call(here, "cdi", "generate", INTO_OUT, deadline_s=20)
        assert trio.current_time() - before_s == pytest.approx(20)
        assert here.world.files_below(OUT.parent) == {}
        # The worker has begun a call of its own, which hangs as well.
        assert not [process for process in here.world.table if INTO_OUT in process.arguments]

    run(scenario, machine=TWO)


def test_it_crashes_with_the_library():
    async def scenario(here):
        here.world.gpus.spoil(Symbol.HANDLE_BY_INDEX, Trouble.CRASH)
        finished = await generate(here, INTO_OUT)
        assert finished.exit.code == -signal.SIGSEGV

    run(scenario, machine=TWO)


def test_faults_of_the_port_meet_it_as_any_command():
    async def scenario(here):
        planted = here.plant(Fault(id="stuck", when=When(method="run", argument="generate"), what=Hang(for_s=60)))
        with pytest.raises(DeadlineExceededError):
            await call(here, "cdi", "generate", deadline_s=5)
        assert planted.fired

    run(scenario, machine=TWO)


def test_a_power_cut_may_take_the_spec_and_leaves_no_half_of_it_in_its_place():
    async def scenario(here):
        await generate(here, "--output=/var/lib/ctk/spec.json")
        whole = here.world.read(Path("/var/lib/ctk/spec.json"))
        await here.reboot()
        left = here.world.files_below(Path("/var/lib/ctk"))
        kept.append(left.get("spec.json"))
        assert all(whole.startswith(data or b"") for data in left.values())

    kept: list[Any] = []
    for seed in range(12):
        run(scenario, seed=seed, machine=TWO)
    assert {data is None for data in kept} == {True, False}


def test_quiet_is_only_errors():
    async def scenario(here):
        argv = ["--quiet", "cdi", "generate", INTO_OUT]
        assert (await call(here, *argv)).stderr == b""
        here.world.gpus.unload_driver()
        assert len((await call(here, *argv)).stderr.splitlines()) == 1

    run(scenario, machine=TWO)
