"""The rules of a spec, on the model: what a file must keep to be loaded, and more that a writer must keep.

Source: CDI SPEC.md, "CDI JSON Specification"; where the Go library is laxer or stricter than the text, it is followed
(docs/cdi.md has the list).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .annotations import annotation_remarks
from .names import device_name_fault, kind_fault
from .problems import ROOT, CdiProblem, CdiReason, Path, Remark, quoted
from .versions import FLOOR_VERSION, KNOWN_VERSIONS, is_below, known_version, needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec

HOOK_STAGES: Final = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NODE_TYPES: Final = ("b", "c", "u", "p")
NO_PERMISSIONS: Final = "none"
_PERMISSIONS: Final = frozenset("rwm")
_UINT32_MAX: Final = (1 << 32) - 1
_INT64_MAX: Final = (1 << 63) - 1
_CLOS_ID_END: Final = 4096


def validate(spec: Spec, *, file: str = "") -> tuple[CdiProblem, ...]:
    """Every rule that the spec breaks, in the order of the document; none: it loads."""
    return tuple(remark.in_file(file, device=device_at(spec, remark.path)) for remark in remarks_on(spec))


def validate_for_writing(spec: Spec, *, file: str = "") -> tuple[CdiProblem, ...]:
    """As `validate`, and what no writer should put into the world though every reader takes it."""
    strict = (*remarks_on(spec), *warnings_on(spec))
    return tuple(remark.in_file(file, device=device_at(spec, remark.path)) for remark in strict)


def device_at(spec: Spec, path: Path) -> str:
    """The name of the device that a path lies in, or ""."""
    match path.segments:
        case ("devices", int(index), *_) if index < len(spec.devices):
            return spec.devices[index].name
        case _:
            return ""


def remarks_on(spec: Spec) -> Iterator[Remark]:
    """What makes a spec refused."""
    yield from _version(spec)
    fault = kind_fault(spec.kind)
    if fault:
        yield _remark(CdiReason.BAD_KIND, ROOT / "kind", fault, spec.kind)
    yield from _devices(spec.devices, ROOT / "devices")
    yield from _edits(spec.container_edits, ROOT / "containerEdits")


def warnings_on(spec: Spec) -> Iterator[Remark]:
    """What is read although SPEC.md forbids it."""
    yield from annotation_remarks(spec.annotations, ROOT / "annotations")
    for index, device in enumerate(spec.devices):
        at = ROOT / "devices" / index
        yield from annotation_remarks(device.annotations, at / "annotations")
        yield from _doubtful(device.container_edits, at / "containerEdits")
    yield from _doubtful(spec.container_edits, ROOT / "containerEdits")


def _remark(reason: CdiReason, path: Path, message: str, value: object = "") -> Remark:
    return Remark(reason=reason, path=path, message=message, value=str(value))


def _version(spec: Spec) -> Iterator[Remark]:
    declared = known_version(spec.cdi_version)
    at = ROOT / "cdiVersion"
    if declared is None:
        known = ", ".join(version for version in KNOWN_VERSIONS if not is_below(version, FLOOR_VERSION))
        given = f"{quoted(spec.cdi_version)} is no version" if spec.cdi_version else "cdiVersion is missing"
        yield _remark(CdiReason.UNKNOWN_VERSION, at, f"{given}; known are {known}", spec.cdi_version)
        return
    need = needed(spec)
    if is_below(declared, need.version):
        where = f", at {document(need.at)}" if need.at is not ROOT else ""
        message = f"version {declared} is too low: {need.trigger} needs at least {need.version}{where}"
        yield _remark(CdiReason.VERSION_TOO_LOW, at, message, spec.cdi_version)


def document(path: Path) -> str:
    """A path as text."""
    return _remark(CdiReason.BAD_TEXT, path, "").in_file("").path


def _devices(devices: tuple[Device, ...], at: Path) -> Iterator[Remark]:
    if not devices:
        yield _remark(CdiReason.NO_DEVICES, at, "a spec has at least one device")
    seen: dict[str, int] = {}
    for index, device in enumerate(devices):
        here = at / index
        fault = device_name_fault(device.name)
        if fault:
            yield _remark(CdiReason.BAD_DEVICE_NAME, here / "name", fault, device.name)
        first = seen.setdefault(device.name, index)
        if first != index:
            message = f"the device name {quoted(device.name)} stands already at devices[{first}]"
            yield _remark(CdiReason.DUPLICATE_DEVICE, here / "name", message, device.name)
        if device.container_edits.is_empty:
            yield _remark(CdiReason.EMPTY_EDITS, here / "containerEdits", "a device must edit something")
        else:
            yield from _edits(device.container_edits, here / "containerEdits")


def _edits(edits: ContainerEdits, at: Path) -> Iterator[Remark]:
    yield from _env(edits.env, at, CdiReason.BAD_ENV)
    for index, node in enumerate(edits.device_nodes):
        yield from _node(node, at, index)
    yield from _net_devices(edits.net_devices, at / "netDevices")
    for index, hook in enumerate(edits.hooks):
        yield from _hook(hook, at, index)
    for index, mount in enumerate(edits.mounts):
        yield from _mount(mount, at, index)
    if edits.intel_rdt is not None:
        yield from _intel_rdt(edits.intel_rdt, at / "intelRdt")
    for index, gid in enumerate(edits.additional_gids):
        if not 0 <= gid <= _UINT32_MAX:
            yield _beyond(at / "additionalGids" / index, "a group id", gid)


def _env(env: tuple[str, ...], at: Path, reason: CdiReason) -> Iterator[Remark]:
    for index, entry in enumerate(env):
        if entry.find("=") < 1:
            yield _remark(reason, at / "env" / index, f"{quoted(entry)} must be NAME=value", entry)


def _node(node: DeviceNode, edits: Path, index: int) -> Iterator[Remark]:
    if not node.path:
        yield _remark(CdiReason.BAD_NODE_PATH, _in_node(edits, index, "path"), "a device node needs a path")
    if node.type and node.type not in NODE_TYPES:
        message = f"the type {quoted(node.type)} must be b, c, u or p"
        yield _remark(CdiReason.BAD_NODE_TYPE, _in_node(edits, index, "type"), message, node.type)
    if node.permissions != NO_PERMISSIONS and not _PERMISSIONS.issuperset(node.permissions):
        message = f"the permissions {quoted(node.permissions)} must be letters of r, w and m, or none"
        yield _remark(CdiReason.BAD_PERMISSIONS, _in_node(edits, index, "permissions"), message, node.permissions)
    for field, number in (("major", node.major), ("minor", node.minor)):
        if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
            message = f"{field} {number} does not fit into 64 bits"
            yield _remark(CdiReason.OUT_OF_RANGE, _in_node(edits, index, field), message, number)
    for field, given in (("fileMode", node.file_mode), ("uid", node.uid), ("gid", node.gid)):
        if given is not None and not 0 <= given <= _UINT32_MAX:
            yield _beyond(_in_node(edits, index, field), field, given)


def _in_node(edits: Path, index: int, field: str) -> Path:
    return edits / "deviceNodes" / index / field


def _beyond(path: Path, what: str, number: int) -> Remark:
    return _remark(CdiReason.OUT_OF_RANGE, path, f"{what} must be 0 to {_UINT32_MAX}, not {number}", number)


def _net_devices(devices: tuple[NetDevice, ...], at: Path) -> Iterator[Remark]:
    hosts: set[str] = set()
    names: set[str] = set()
    for index, device in enumerate(devices):
        for field, name, seen in (
            ("hostInterfaceName", device.host_interface_name, hosts),
            ("name", device.name, names),
        ):
            if not name:
                yield _remark(CdiReason.BAD_NET_DEVICE, at / index / field, f"a network device needs a {field}")
            elif name in seen:
                message = f"the {field} {quoted(name)} stands twice in one list"
                yield _remark(CdiReason.BAD_NET_DEVICE, at / index / field, message, name)
            seen.add(name)


def _hook(hook: Hook, edits: Path, index: int) -> Iterator[Remark]:
    at = edits / "hooks" / index
    if hook.hook_name not in HOOK_STAGES:
        message = f"the hookName {quoted(hook.hook_name)} must be one of {', '.join(HOOK_STAGES)}"
        yield _remark(CdiReason.UNKNOWN_HOOK_STAGE, at / "hookName", message, hook.hook_name)
    if not hook.path:
        yield _remark(CdiReason.BAD_HOOK, at / "path", "a hook needs a path")
    yield from _env(hook.env, at, CdiReason.BAD_HOOK)
    if hook.timeout is not None and not -_INT64_MAX - 1 <= hook.timeout <= _INT64_MAX:
        yield _remark(CdiReason.OUT_OF_RANGE, at / "timeout", "the timeout does not fit into 64 bits", hook.timeout)


def _doubtful(edits: ContainerEdits, at: Path) -> Iterator[Remark]:
    for index, node in enumerate(edits.device_nodes):
        for field, number in (("major", node.major), ("minor", node.minor)):
            if number < 0:
                message = f"the {field} number {number} would allow every device, so that it cannot be injected"
                yield _remark(CdiReason.OUT_OF_RANGE, _in_node(at, index, field), message, number)
    for index, hook in enumerate(edits.hooks):
        if hook.timeout is not None and hook.timeout <= 0:
            message = f"the timeout must be above 0 seconds, not {hook.timeout}"
            yield _remark(CdiReason.BAD_HOOK, at / "hooks" / index / "timeout", message, hook.timeout)


def _mount(mount: Mount, edits: Path, index: int) -> Iterator[Remark]:
    for field, path in (("hostPath", mount.host_path), ("containerPath", mount.container_path)):
        if not path:
            yield _remark(CdiReason.BAD_MOUNT, edits / "mounts" / index / field, f"a mount needs a {field}")


def _intel_rdt(rdt: IntelRdt, at: Path) -> Iterator[Remark]:
    clos = rdt.clos_id
    # "/" alone is the root group, which resctrl allows.
    bad_characters = clos != "/" and ("/" in clos or "\n" in clos)
    if len(clos.encode(errors="replace")) >= _CLOS_ID_END or clos in {".", ".."} or bad_characters:
        message = f"the closID {quoted(clos)} must be the name of one directory, below {_CLOS_ID_END} bytes"
        yield _remark(CdiReason.BAD_INTEL_RDT, at / "closID", message, clos)
