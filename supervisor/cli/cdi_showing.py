"""What `greenroom cdi list` and `show` print: devices, what a container gets with them, and what the host has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.cdi import CdiError, Spec, nodes_of, to_dict
from actors.cdi.nodes import filled, host_path
from statemachine.wording import file_label, one_line
from supervisor.cli.cdi_answers import problem_json
from supervisor.cli.columns import aligned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from actors.cdi import ContainerEdits, DeviceNode, Found, Hook, HostNode, Lstat, Mount, Registry

_VALUE_CHARACTERS_MAX: Final = 500
_NEWEST: Final = "1.1.0"
_FIFO: Final = "p"


def device_rows(registry: Registry) -> Iterator[str]:
    """A table of all devices that resolve."""
    rows = [("DEVICE", "KIND", "FILE", "SAME NODES AS")]
    aliases = _aliases(registry)
    for name in registry.names():
        found = registry.found[name]
        others = ", ".join(_short(other, found.spec.kind) for other in aliases[name]) or "-"
        rows.append((name, found.spec.kind, file_label(found.path), others))
    yield from aligned(rows)


def devices_json(registry: Registry) -> list[dict[str, Any]]:
    """The same as objects."""
    aliases = _aliases(registry)
    return [_device_json(registry.found[name], aliases[name]) for name in registry.names()]


def files_json(registry: Registry) -> list[dict[str, Any]]:
    """Every file, and every directory that could not be read, with what is wrong there."""
    errors = registry.errors
    files = [
        {
            "file": file_label(file.path),
            "kind": file.spec.kind if file.spec else None,
            "version": file.spec.cdi_version if file.spec else None,
            "devices": [device.name for device in file.spec.devices] if file.spec else [],
            "problems": [problem_json(problem) for problem in errors.pop(file.path, ())],
            "warnings": [problem_json(problem) for problem in file.warnings],
        }
        for file in registry.files
    ]
    directories = [
        {"file": file_label(path), "problems": [problem_json(problem) for problem in problems], "warnings": []}
        for path, problems in errors.items()
    ]
    return [*directories, *files]


def shown_json(
    registry: Registry, found: Sequence[Found], edits: ContainerEdits, *, lstat: Lstat, dev_root: str
) -> dict[str, Any]:
    """What a container gets, and the nodes of the host that it takes."""
    aliases = _aliases(registry)
    return {
        "devices": [_device_json(each, aliases[each.name]) for each in found],
        "edits": _edits_json(edits),
        "hostNodes": [_host_node_json(node, host_path(node, dev_root), lstat) for node in edits.device_nodes],
    }


def shown_lines(
    registry: Registry, found: Iterable[Found], edits: ContainerEdits, *, lstat: Lstat, dev_root: str
) -> Iterator[str]:
    """The same for a person, one thing a line."""
    aliases = _aliases(registry)
    for each in found:
        yield f"{each.name}  from {file_label(each.path)}, version {each.spec.cdi_version}"
        if aliases[each.name]:
            yield f"{'':10}the same nodes as {', '.join(_short(other, each.spec.kind) for other in aliases[each.name])}"
    for entry in edits.env:
        yield _line("env", entry)
    for node in edits.device_nodes:
        yield _line("node", f"{_node(node)}; on this host: {_on_host(node, host_path(node, dev_root), lstat)}")
    for mount in edits.mounts:
        yield _line("mount", _mount(mount))
    for hook in edits.hooks:
        yield _line("hook", _hook(hook))
    for device in edits.net_devices:
        yield _line("network", f"{device.host_interface_name} as {device.name}")
    if edits.intel_rdt is not None:
        yield _line("intelRdt", str(_edits_json(edits)["intelRdt"]))
    if edits.additional_gids:
        yield _line("groups", ", ".join(map(str, edits.additional_gids)))


def _aliases(registry: Registry) -> dict[str, tuple[str, ...]]:
    """Each device -> the others with the very same nodes."""
    return {
        name: tuple(other for other in group.names if other != name)
        for group in registry.aliases()
        for name in group.names
    }


def _short(name: str, kind: str) -> str:
    """A name as it is told beside another one of its kind."""
    return name.removeprefix(f"{kind}=")


def _device_json(found: Found, aliases: Sequence[str]) -> dict[str, Any]:
    return {
        "name": found.name,
        "kind": found.spec.kind,
        "file": file_label(found.path),
        "aliases": list(aliases),
        "nodes": sorted(nodes_of(found.device.container_edits)),
    }


def _edits_json(edits: ContainerEdits) -> dict[str, Any]:
    whole = to_dict(Spec(cdi_version=_NEWEST, kind="", devices=(), container_edits=edits))
    content: dict[str, Any] = whole.get("containerEdits", {})
    return content


def _host_node_json(node: DeviceNode, at: str, lstat: Lstat) -> dict[str, Any]:
    found = lstat(at)
    numbers = found and {"type": found.type, "major": found.major, "minor": found.minor, "mode": found.mode}
    return {"path": node.path, "hostPath": at, "found": numbers, "fault": _fault(node, found, at)}


def _on_host(node: DeviceNode, at: str, lstat: Lstat) -> str:
    found = lstat(at)
    fault = _fault(node, found, at)
    if fault:
        return f"NO: {fault}"
    if found is None:
        return "not there, made as it is written"
    numbers = "" if found.type == _FIFO else f" {found.major}:{found.minor}"
    return f"{found.type}{numbers}, mode {found.mode:04o}"


def _fault(node: DeviceNode, found: HostNode | None, at: str) -> str | None:
    """Why an injection fails here, or None."""
    try:
        filled(node, found, at)
    except CdiError as error:
        return error.problems[0].message
    return None


def _line(what: str, text: str) -> str:
    return f"{what:<10}{one_line(text, _VALUE_CHARACTERS_MAX)}"


def _node(node: DeviceNode) -> str:
    parts = [node.path]
    if node.host_path and node.host_path != node.path:
        parts.append(f"from {node.host_path}")
    if node.type or node.major:
        parts.append(f"{node.type or 'type of the host'} {node.major}:{node.minor}")
    owned = (
        ("mode", None if node.file_mode is None else f"{node.file_mode:04o}"),
        ("uid", node.uid),
        ("gid", node.gid),
    )
    parts += [f"{name} {value}" for name, value in owned if value is not None]
    if node.permissions:
        parts.append(f"permissions {node.permissions}")
    return ", ".join(parts)


def _mount(mount: Mount) -> str:
    options = ",".join((*((mount.type,) if mount.type else ()), *mount.options))
    return f"{mount.host_path} at {mount.container_path}" + (f" ({options})" if options else "")


def _hook(hook: Hook) -> str:
    words = (hook.path, *hook.args[1:], *hook.env)
    timeout = "" if hook.timeout is None else f" (at most {hook.timeout} s)"
    return f"{hook.hook_name}: {' '.join(words)}{timeout}"
