"""GPUs, claims and specs for tests, small enough to be read beside what is expected of them."""

from actors.cdi import ContainerEdits, Device, DeviceNode, Hook, HostNode, Mount, Spec
from actors.gpu.inventory import Gpu, Inventory
from actors.gpu.partition import Claim
from sim.world.gpus import Health
from statemachine.problem import ProblemError


def gpu(minor, **more):
    """A GPU whose UUID names its minor, and whose place on the bus is in another order than the minors are."""
    given = {"uuid": f"GPU-{minor}", "pci_bus_id": f"0000:{0xF0 - minor % 0xF0:02x}:00.0", "model": "NVIDIA H100"}
    return Gpu(minor=minor, **{**given, **more})


def inventory(*minors, **lost):
    """`inventory(2, 5, lost={5: "XID 79"})`."""
    causes = lost.get("lost", {})
    return Inventory(gpu(minor, lost=causes.get(minor)) for minor in minors)


def inventory_of(simulated):
    """What NVML and the nodes say of simulated GPUs."""
    return Inventory(
        Gpu(
            uuid=each.uuid,
            minor=each.minor,
            pci_bus_id=each.pci_bus_id,
            model=each.model,
            mig_devices=() if each.is_in_mig_mode else None,
            lost="XID 79" if each.health is Health.LOST else None,
        )
        for each in simulated
    )


def claims(**counts):
    return tuple(Claim(container, count) for container, count in counts.items())


def problems(function, *args, **kwargs):
    """The problems that a call raises."""
    try:
        function(*args, **kwargs)
    except ProblemError as error:
        return error.problems
    raise AssertionError("it was not refused")


CONTROL = (DeviceNode(path="/dev/nvidiactl"), DeviceNode(path="/dev/nvidia-uvm"))
LIBRARY = Mount(
    host_path="/driver/lib64/libcuda.so.570.1",
    container_path="/usr/lib64/libcuda.so.570.1",
    options=("rprivate", "ro", "nosuid", "nodev", "rbind"),
)
LINKS = Hook(
    hook_name="createContainer",
    path="/usr/bin/nvidia-cdi-hook",
    args=("nvidia-cdi-hook", "create-symlinks", "--link", "libcuda.so.1::/usr/lib64/libcuda.so"),
)


def spec(*minors, common=None, names="index", alias=True):
    """A spec as nvidia-ctk writes it: each GPU by index and by UUID, and `all`."""
    devices = []
    for index, minor in enumerate(minors):
        edits = ContainerEdits(device_nodes=(DeviceNode(path=f"/dev/nvidia{minor}"),))
        if names == "index":
            devices.append(Device(name=str(index), container_edits=edits))
        if alias:
            devices.append(Device(name=f"GPU-{minor}", container_edits=edits))
    every = tuple(DeviceNode(path=f"/dev/nvidia{minor}") for minor in minors)
    devices.append(Device(name="all", container_edits=ContainerEdits(device_nodes=every)))
    edits = common or ContainerEdits(
        env=("NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64", "NVIDIA_VISIBLE_DEVICES=void"),
        device_nodes=CONTROL,
        mounts=(LIBRARY,),
        hooks=(LINKS,),
    )
    return Spec(cdi_version="0.7.0", kind="nvidia.com/gpu", devices=tuple(devices), container_edits=edits)


def host(*minors, uvm=511, **more):
    """A host's device nodes, as `Mapping.get` answers for them."""
    nodes = {
        "/dev/nvidiactl": HostNode(type="c", major=195, minor=255, mode=0o666),
        "/dev/nvidia-uvm": HostNode(type="c", major=uvm, minor=0, mode=0o666),
        **{f"/dev/nvidia{minor}": HostNode(type="c", major=195, minor=minor, mode=0o666) for minor in minors},
    }
    return {**nodes, **more.get("also", {})}.get
