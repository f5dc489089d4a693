"""What is looked at, in this order: from what was carried to a GPU actor of a real worker in real gVisor."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from . import container
from .commands import CheckError, Talker, require, run, tail, talking
from .places import Bench, Gpu

_LIBRARY_FOLDERS: Final = (
    "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
)  # fmt: skip
_ACTOR: Final = "gpu-check"
_POLL_S: Final = 0.2
# At most one sandbox is up at a time. The namespace of the gofers is no mount then, which would outlive the sandbox.
_RUNSC_FLAGS: Final = (
    "--platform=systrap", "--network=none", "--ignore-cgroups", "--overlay2=root:memory",
    "--gofer-network-namespace=new",
)  # fmt: skip


def unpack(bench: Bench) -> str:
    """Wheels and programs are whole and for this machine."""
    told = bench.package.unpack(bench.scratch)
    version = require(bench.greenroom("--version"), bound_s=30, env=bench.env).strip()
    return f"{told}; {version}"


def doctor(bench: Bench) -> str:
    """`greenroom doctor` finds nothing in the way."""
    argv = bench.greenroom("doctor", "--json", *_worker_places(bench), *bench.places.flags())
    code, out, err = run(argv, bound_s=bench.clock.within(60), env=bench.env)
    try:
        checks = json.loads(out)["checks"]
    except (ValueError, KeyError):
        raise CheckError(f"it ended with {code} and no answer: {tail(err)}") from None
    bench.found["doctor"] = checks
    bad = [f"{each['name']}: {each['reason']}: {each['message']}" for each in checks if each["status"] == "fail"]
    if bad or code != 0:
        raise CheckError("; ".join(bad) or f"it ended with {code}: {tail(err)}")
    warned = [each["name"] for each in checks if each["status"] == "warn"]
    return f"{len(checks)} looked at" + (f", warnings: {', '.join(warned)}" if warned else "")


def inventory(bench: Bench) -> str:
    """nvidia-smi, the device nodes and Greenroom tell of the same GPUs."""
    out = require([bench.places.nvidia_smi, "-q", "-x"], bound_s=bench.clock.within(60), env=bench.env)
    bench.driver, bench.gpus = read_nvidia_smi(out)
    bench.found["nvidiaSmi"] = {"driver": bench.driver, "gpus": [vars(gpu) for gpu in bench.gpus]}
    nodes = bench.places.gpu_minors()
    minors = tuple(sorted(gpu.minor for gpu in bench.gpus))
    if minors != nodes:
        raise CheckError(f"nvidia-smi has the minors {list(minors)}, and /dev has {list(nodes)}")
    ours = _greenrooms_inventory(bench)
    theirs = {gpu.uuid: (gpu.minor, gpu.pci_bus_id) for gpu in bench.gpus}
    if ours != theirs:
        raise CheckError(f"Greenroom has {ours}, and nvidia-smi has {theirs}")
    models = ", ".join(sorted({gpu.model for gpu in bench.gpus}))
    return f"{len(theirs)} of {models}, minors {list(minors)}, driver {bench.driver}"


def read_nvidia_smi(text: str) -> tuple[str, tuple[Gpu, ...]]:
    """The driver's version and the GPUs from `nvidia-smi -q -x`."""
    try:
        log = ET.fromstring(text)
        gpus = tuple(
            Gpu(
                uuid=each.findtext("uuid", ""),
                minor=int(each.findtext("minor_number", "")),
                pci_bus_id=bus_id(each.get("id", "")),
                model=each.findtext("product_name", ""),
            )
            for each in log.iter("gpu")
        )
    except (ET.ParseError, ValueError) as error:
        raise CheckError(f"nvidia-smi -q -x is not understood: {error}: {tail(text)}") from error
    return log.findtext("driver_version", ""), gpus


def bus_id(text: str) -> str:
    """As sysfs spells it: the domain has four digits, not eight."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _greenrooms_inventory(bench: Bench) -> dict[str, tuple[int, str]]:
    plan = json.loads(
        require(
            bench.greenroom("plan", "--json", *_plan_places(bench), _assignment(bench)),
            bound_s=bench.clock.within(90), env=bench.env,
        )
    )  # fmt: skip
    bench.found["plan"] = {key: value for key, value in plan.items() if key != "diffs"}
    listed = plan["inventory"]["gpus"] if isinstance(plan["inventory"], dict) else plan["inventory"]
    return {each["uuid"]: (each["minor"], bus_id(each["pciBusId"])) for each in listed}


def toolkit(bench: Bench) -> str:
    """The real nvidia-ctk writes a spec, and Greenroom finds nothing wrong with it."""
    private = bench.scratch / "spec"
    private.mkdir(mode=0o700)
    bench_spec = private / "nvidia.json"
    roots = bench.places
    argv: list[str | Path] = [
        bench.program("nvidia-ctk"), "cdi", "generate", f"--output={bench_spec}", f"--driver-root={roots.driver_root}",
        f"--dev-root={roots.dev_root}", f"--nvidia-cdi-hook-path={bench.program('nvidia-cdi-hook')}",
    ]  # fmt: skip
    argv += [f"--library-search-path={folder}" for folder in _library_folders(bench, "libnvidia-ml.so.1")]
    env = {"PATH": bench.env["PATH"], "TMPDIR": str(private)}
    require(argv, bound_s=bench.clock.within(60), env=env)
    require(bench.greenroom("cdi", "validate", bench_spec), bound_s=bench.clock.within(30), env=bench.env)
    bench.spec = bench_spec
    spec = json.loads(bench_spec.read_text())
    names = [device["name"] for device in spec["devices"]]
    bench.found["spec"] = {"cdiVersion": spec["cdiVersion"], "kind": spec["kind"], "devices": names}
    return f"version {spec['cdiVersion']}, {spec['kind']}: {', '.join(names)}"


def inject(bench: Bench) -> str:
    """The first GPU is injected into a bundle, with the numbers that its node has here."""
    kind = bench.found["spec"]["kind"]
    device = f"{kind}={_first(bench)}"
    argv = bench.greenroom("cdi", "inject", "--spec", str(bench.spec), "--device", device)
    given = json.dumps(container.config())
    out = require(argv, bound_s=bench.clock.within(30), env=bench.env, given=given)
    injected = json.loads(out)
    nodes = injected["linux"]["devices"]
    for node in nodes:
        there = (bench.places.dev_root / node["path"].lstrip("/")).stat()
        numbers = (os.major(there.st_rdev), os.minor(there.st_rdev))
        if (node["type"], node["major"], node["minor"]) != ("c", *numbers):
            raise CheckError(f"{node['path']} is {numbers} here, and was injected as {node}")
    gpus = [node["path"] for node in nodes if re.fullmatch(r"/dev/nvidia\d+", node["path"])]
    if len(gpus) != 1:
        raise CheckError(f"not one GPU was injected, but {gpus}")
    bench.bundle = _make_bundle(bench, injected)
    mounted = len(container.libraries(injected))
    return f"{device}: {', '.join(node['path'] for node in nodes)} and {mounted} libraries"


def _make_bundle(bench: Bench, injected: dict[str, Any]) -> Path:
    """A bundle with the injected configuration, whose links the real nvidia-cdi-hook has made."""
    sources = [Path(mount["source"]) for mount in injected["mounts"] if mount["source"].startswith("/")]
    # Not firmware and the like: what the dynamic linker would load something for.
    programs = [path for path in sources if path.is_file() and (".so" in path.name or os.access(path, os.X_OK))]
    container.make_rootfs(
        bench.scratch / "rootfs", for_libraries=programs, without={path.resolve().name for path in programs}
    )
    bundle = bench.scratch / "bundle"
    shutil.copytree(bench.scratch / "rootfs", bundle / "rootfs", symlinks=True, copy_function=os.link)
    container.write_bundle(bundle, injected, ["/bin/false"])
    state = json.dumps({"ociVersion": "1.1.0", "id": _ACTOR, "status": "creating", "pid": 0, "bundle": str(bundle)})
    for hook in injected.get("hooks", {}).get("createContainer", []):
        if "create-symlinks" in hook["args"][:3]:
            require([bench.program("nvidia-cdi-hook"), *hook["args"][1:]], bound_s=30, given=state)
    (bundle / "injected.json").write_text(json.dumps(injected))
    return bundle


def cuda(bench: Bench) -> str:
    """The program computes on this machine itself."""
    program = Path(__file__).with_name("cuda.py")
    with talking([container.interpreter(), "-I", program, "--hold"], env=_with_libraries(bench)) as talker:
        return _computed(bench, talker, "outside")


def gvisor(bench: Bench) -> str:
    """gVisor knows the driver, and nvidia-smi inside finds the GPU."""
    runsc = bench.program("runsc")
    supported = require([runsc, "nvproxy", "list-supported-drivers"], bound_s=30).split()
    if bench.driver is not None and bench.driver not in supported:
        raise CheckError(f"this runsc does not support driver {bench.driver}; it does: {', '.join(supported)}")
    out = require(_sandbox(bench, ["nvidia-smi", "-L"]), bound_s=bench.clock.within(60), env=bench.env)
    if _first(bench) not in out:
        raise CheckError(f"nvidia-smi -L inside does not name {_first(bench)}: {tail(out)}")
    return tail(out)


def cuda_inside(bench: Bench) -> str:
    """The program computes inside gVisor, and sees the one GPU that it was given."""
    args = [str(container.interpreter()), "-I", container.PROGRAM, "--hold"]
    with talking(_sandbox(bench, args), env=bench.env) as talker:
        told = _computed(bench, talker, "inside")
    facts = bench.found["cuda"]["inside"]
    if (facts["devices"], facts["uuid"]) != (1, _first(bench)):
        raise CheckError(f"it sees {facts['devices']} devices, the first {facts['uuid']}")
    return told


def worker(bench: Bench) -> str:
    """A worker runs an actor that claims one GPU, and the program in it computes."""
    state, runs = bench.scratch / "state", bench.scratch / "run"
    env = {**bench.env, "GREENROOM_STATE_DIR": str(state), "GREENROOM_RUN_DIR": str(runs)}
    argv = bench.greenroom("run", "--log-format=json", *_worker_places(bench), *bench.places.flags())
    with talking(argv, env=env, listens_to_stderr=True) as process:
        process.line(lambda line: '"event":"ready"' in line, bound_s=bench.clock.within(30))
        require(bench.greenroom("submit", "--wait", _assignment(bench)), bound_s=bench.clock.within(60), env=env)
        facts = _read_program(_logged(bench, env))
        status = json.loads(require(bench.greenroom("status", _ACTOR, "--json"), bound_s=30, env=env))
        held = [uuid for each in status["containers"] for uuid in each.get("gpus", ())]
        require(bench.greenroom("stop", _ACTOR), bound_s=bench.clock.within(60), env=env)
    bench.found["worker"] = {"program": facts, "gpus": held}
    if facts["devices"] != 1 or held != [facts["uuid"]]:
        raise CheckError(f"the actor was granted {held}, and the program sees {facts['devices']}, {facts['uuid']}")
    return f"{facts['uuid']} was granted and computed on"


CHECKS: Final[dict[str, Callable[[Bench], str]]] = {
    "unpack": unpack, "doctor": doctor, "inventory": inventory, "toolkit": toolkit, "inject": inject, "cuda": cuda,
    "gvisor": gvisor, "cuda-inside": cuda_inside, "worker": worker,
}  # fmt: skip
NEEDS: Final = MappingProxyType(
    {
        "doctor": ("unpack",),
        "inventory": ("unpack",),
        "toolkit": ("unpack",),
        "inject": ("toolkit",),
        "gvisor": ("inject",),
        "cuda-inside": ("inject",),
        "worker": ("inject",),
    }
)
"""The checks whose finds a check cannot do without."""


def _first(bench: Bench) -> str:
    """The first GPU's UUID."""
    names = [name for name in bench.found["spec"]["devices"] if name.startswith("GPU-")]
    if not names:
        raise CheckError(f"the spec names no GPU by its UUID: {bench.found['spec']['devices']}")
    return str(min(names))


def _plan_places(bench: Bench) -> list[str]:
    return [f"--toolkit-dir={bench.program('nvidia-ctk').parent}", *bench.places.flags()]


def _worker_places(bench: Bench) -> list[str]:
    return [
        f"--runsc={bench.program('runsc')}", f"--toolkit-dir={bench.program('nvidia-ctk').parent}",
        f"--state-dir={bench.scratch / 'state'}", f"--run-dir={bench.scratch / 'run'}",
    ]  # fmt: skip


def _assignment(bench: Bench) -> Path:
    """An actor with one container that claims one GPU and runs the program."""
    words = [str(container.interpreter()), "-I", container.PROGRAM, "--hold-s", "600"]
    (bench.scratch / "rootfs").mkdir(exist_ok=True)
    path = bench.scratch / "assignment.json"
    claims = {"limits": {"nvidia.com/gpu": 1}}
    rootfs = str(bench.scratch / "rootfs")
    document = {
        "apiVersion": "greenroom.dev/v1alpha1",
        "kind": "WorkerAssignment",
        "metadata": {"uid": _ACTOR, "name": _ACTOR, "generation": 1},
        "spec": {
            "desiredState": "Running",
            "containers": [{"name": "cuda", "rootfs": rootfs, "command": words, "resources": claims}],
        },
    }
    path.write_text(json.dumps(document))
    return path


def _library_folders(bench: Bench, name: str) -> list[str]:
    """The folders of the driver that hold a library."""
    root = bench.places.driver_root
    return [str(root / each) for each in _LIBRARY_FOLDERS if (root / each / name).exists()]


def _with_libraries(bench: Bench) -> dict[str, str]:
    """The environment in which a program of this machine finds the driver's libraries."""
    folders = _library_folders(bench, "libcuda.so.1")
    kept = bench.env.get("LD_LIBRARY_PATH")
    return {"PATH": bench.env["PATH"], "LD_LIBRARY_PATH": ":".join([*([kept] if kept else []), *folders])}


def _sandbox(bench: Bench, args: list[str]) -> list[str | Path]:
    """The command line that runs these words in a sandbox with the GPU."""
    bundle = bench.bundle
    if bundle is None:
        raise CheckError("there is no bundle")
    container.write_bundle(bundle, json.loads((bundle / "injected.json").read_text()), args)
    roots = [f"--root={bench.scratch / 'runsc'}", *_RUNSC_FLAGS]
    number = len(list(bench.scratch.glob("sandbox-*")))
    (bench.scratch / f"sandbox-{number}").touch()
    return [bench.program("runsc"), *roots, "run", f"--bundle={bundle}", f"check-{number}"]


def _computed(bench: Bench, talker: Talker, where: str) -> str:
    """What the program says; while it holds its context, nvidia-smi is asked who computes."""
    line = talker.line(lambda line: line.startswith("{"), bound_s=bench.clock.within(90))
    facts = _read_program(line)
    query = [bench.places.nvidia_smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    code, out, _ = run(query, bound_s=bench.clock.within(30), env=bench.env)
    seen = [] if code else out.strip().splitlines()
    bench.found.setdefault("cuda", {})[where] = {**facts, "computeApps": seen}
    if talker.let_go() != 0:
        raise CheckError("it computed, but did not end well")
    version = facts["driverVersion"]
    return f"{facts['device']} ({facts['uuid']}), CUDA {version // 1000}.{version % 1000 // 10}, {facts['words']} words"


def _logged(bench: Bench, env: dict[str, str]) -> str:
    """The line that the program of the actor has written, when it has."""
    end = time.monotonic() + bench.clock.within(60)
    while time.monotonic() < end:
        written = require(bench.greenroom("logs", _ACTOR), bound_s=30, env=env)
        line = next((line for line in written.splitlines() if line.startswith("{")), None)
        if line is not None:
            return line
        time.sleep(_POLL_S)
    raise CheckError("the program in the actor has written nothing")


def _read_program(line: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(line)
    if not facts["ok"]:
        raise CheckError(facts["error"])
    return facts
