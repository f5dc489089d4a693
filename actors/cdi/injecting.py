"""Edits into an OCI runtime document: pure, on a copy, all or nothing, and twice is once.

Source: CDI SPEC.md, "containerEdits"; OCI runtime-spec 1.2; order and replacement are the Go library's of HEAD
(docs/cdi.md, "Injection"), but for what would make a second injection differ from the first.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .nodes import Owner, as_device, as_rule, filled, host_path
from .paths import clean
from .problems import CdiError, CdiProblem, CdiReason, quoted
from .validation import HOOK_STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from .model import ContainerEdits, DeviceNode, Hook, IntelRdt, Mount
    from .ports import Lstat

T = TypeVar("T")
_Object = dict[str, Any]
_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_ID_MAPS: Final = {"bind": "idmap", "rbind": "ridmap"}
"""A bind mount's option -> the one that maps its owners into a user namespace."""


def inject(document: Mapping[str, Any], edits: ContainerEdits, *, lstat: Lstat, dev_root: str = "/") -> dict[str, Any]:
    """A copy of an OCI document with the edits made.

    Args:
        document: the content of a config.json; never changed.
        edits: of `Registry.resolve`, or of a device alone.
        lstat: looks at the host's device nodes; `host_paths` tells which, for those who must look beforehand.
        dev_root: the directory that the host's /dev is in, when it is not the root.

    Raises:
        CdiError: HostNodeMissing HostNodeIsNone NodeTypeMismatch (one for each node), UnknownHookStage (edits that
            nobody validated), BadOciDocument.
    """
    made: _Object = _copied(dict(document))
    # What can fail comes first, all of it, so that every node that is missing is told at once.
    nodes = _resolved_nodes(edits.device_nodes, lstat, dev_root)
    _require_stages(edits.hooks)
    _set_env(made, edits.env)
    _add_nodes(made, nodes)
    _add_net_devices(made, edits)
    _add_mounts(made, edits.mounts)
    _add_hooks(made, edits.hooks)
    if edits.intel_rdt is not None:
        _object(made, "linux")["intelRdt"] = _as_rdt(edits.intel_rdt)
    _add_gids(made, edits.additional_gids)
    return made


def _copied(value: Any) -> Any:
    """A copy of JSON, far quicker than one of anything; what is no JSON is copied as well."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {key: _copied(each) for key, each in value.items()}
    if kind is list:
        return [_copied(each) for each in value]
    return copy.deepcopy(value)


def _resolved_nodes(nodes: Iterable[DeviceNode], lstat: Lstat, dev_root: str) -> list[DeviceNode]:
    resolved: list[DeviceNode] = []
    problems: list[CdiProblem] = []
    for node in nodes:
        at = host_path(node, dev_root)
        try:
            resolved.append(filled(node, lstat(at), at))
        except CdiError as error:
            problems += error.problems
    if problems:
        raise CdiError(*problems)
    return resolved


def _require_stages(hooks: Iterable[Hook]) -> None:
    for hook in hooks:
        if hook.hook_name not in HOOK_STAGES:
            message = f"there is no hook stage {quoted(hook.hook_name)}"
            raise CdiError(
                CdiProblem(reason=CdiReason.UNKNOWN_HOOK_STAGE, message=message, path=hook.path, value=hook.hook_name)
            )


def _set_env(made: _Object, edits: tuple[str, ...]) -> None:
    if not edits:
        return
    env = _list(made, "process", "env")
    # An entry without "=" is that variable too. Of several, the last is the one that counts.
    places = {_variable(entry): index for index, entry in enumerate(env)}
    for entry in edits:
        index = places.setdefault(_variable(entry), len(env))
        env[index : index + 1] = [entry]


def _variable(entry: object) -> str:
    return str(entry).partition("=")[0]


def _add_nodes(made: _Object, nodes: list[DeviceNode]) -> None:
    if not nodes:
        return
    owner = Owner(uid=_positive(made, "uid"), gid=_positive(made, "gid"))
    devices = _list(made, "linux", "devices")
    last = _last_of_each(nodes, lambda node: node.path)
    _replace_each(devices, [as_device(node, owner) for node in last], "path")
    # A node that a later one replaces has a rule all the same: what two edits allow together is allowed.
    rules = [rule for rule in map(as_rule, nodes) if rule is not None]
    if rules:
        _add_rules(_list(made, "linux", "resources", "devices"), rules)


def _positive(made: _Object, key: str) -> int | None:
    value = _peek(made, "process", "user", key)
    return value if isinstance(value, int) and value > 0 else None


def _add_rules(existing: list[Any], rules: list[_Object]) -> None:
    # Rules are applied in order: one that a later denial takes back does not count as being there.
    denials = [index for index, rule in enumerate(existing) if isinstance(rule, dict) and not rule.get("allow")]
    in_force = existing[denials[-1] + 1 :] if denials else list(existing)
    for rule in rules:
        if rule not in in_force:
            existing.append(rule)
            in_force.append(rule)


def _add_net_devices(made: _Object, edits: ContainerEdits) -> None:
    if edits.net_devices:
        devices = _object(made, "linux", "netDevices")
        devices.update({device.host_interface_name: {"name": device.name} for device in edits.net_devices})


def _add_mounts(made: _Object, edits: tuple[Mount, ...]) -> None:
    if not edits:
        return
    namespaces = _peek(made, "linux", "namespaces")
    has_user_namespace = isinstance(namespaces, list) and any(
        isinstance(namespace, dict) and namespace.get("type") == "user" for namespace in namespaces
    )
    mounts = _list(made, "mounts")
    last = _last_of_each(edits, lambda mount: mount.container_path)
    _replace_each(mounts, [_as_mount(mount, maps_ids=has_user_namespace) for mount in last], "destination")
    # Parents come before what is mounted inside them; the sort is stable, so that everything else keeps its order.
    mounts.sort(key=_depth)


def _as_mount(mount: Mount, *, maps_ids: bool) -> _Object:
    options = list(mount.options)
    if maps_ids and not {"idmap", "ridmap"} & set(options):
        # The last of them is the one that mount(2) is called with.
        bound = [option for option in options if option in _ID_MAPS] or [
            word for word in [mount.type] if word == "bind"
        ]
        options += [_ID_MAPS[word] for word in bound[-1:]]
    made: _Object = {"destination": mount.container_path, "source": mount.host_path}
    if mount.type:
        made["type"] = mount.type
    return made | ({"options": options} if options else {})


def _depth(mount: object) -> int:
    destination = mount.get("destination", "") if isinstance(mount, dict) else ""
    return clean(destination).count("/") if isinstance(destination, str) else 0


def _add_hooks(made: _Object, hooks: tuple[Hook, ...]) -> None:
    for hook in hooks:
        stage = _list(made, "hooks", hook.hook_name)
        item = _as_hook(hook)
        if item not in stage:
            stage.append(item)


def _as_hook(hook: Hook) -> _Object:
    optional = {"args": list(hook.args), "env": list(hook.env)}
    made: _Object = {"path": hook.path} | {key: value for key, value in optional.items() if value}
    return made | ({} if hook.timeout is None else {"timeout": hook.timeout})


def _as_rdt(rdt: IntelRdt) -> _Object:
    fields = {
        "closID": rdt.clos_id,
        "schemata": list(rdt.schemata or ()),
        "l3CacheSchema": rdt.l3_cache_schema,
        "memBwSchema": rdt.mem_bw_schema,
        "enableMonitoring": rdt.enable_monitoring,
    }
    return {key: value for key, value in fields.items() if value}


def _add_gids(made: _Object, gids: tuple[int, ...]) -> None:
    wanted = [gid for gid in dict.fromkeys(gids) if gid != 0]
    if wanted:
        existing = _list(made, "process", "user", "additionalGids")
        existing += [gid for gid in wanted if gid not in existing]


def _last_of_each(items: Sequence[T], key: Callable[[T], Hashable]) -> list[T]:
    """Of several with one key the last, where it stands: what doing one after the other comes to."""
    last = {key(item): index for index, item in enumerate(items)}
    return [item for index, item in enumerate(items) if last[key(item)] == index]


def _replace_each(existing: list[Any], items: list[_Object], key: str) -> None:
    """Take out what each item replaces, and append them all.

    That is the first entry with the same text in `key`; but where the very same entry is there already it is that one
    (the last of several), so that a document with two entries for one path is not changed again by a second injection.
    """
    for item in items:
        same = [index for index, entry in enumerate(existing) if _get(entry, key) == item[key]]
        if same:
            del existing[next((index for index in reversed(same) if existing[index] == item), same[0])]
        existing.append(item)


def _peek(made: _Object, *keys: str) -> object:
    """What stands at a path of keys; None where nothing does."""
    inner: object = made
    for key in keys:
        inner = inner.get(key) if isinstance(inner, dict) else None
    return inner


def _get(entry: object, key: str) -> object:
    return entry.get(key) if isinstance(entry, dict) else None


def _object(made: _Object, *keys: str) -> _Object:
    """The object at a path of keys, made where it is absent or null."""
    inner = made
    for depth, key in enumerate(keys):
        if inner.get(key) is None:
            inner[key] = {}
        if not isinstance(inner[key], dict):
            raise _odd(keys[: depth + 1], "an object")
        inner = inner[key]
    return inner


def _list(made: _Object, *keys: str) -> list[Any]:
    """The list at a path of keys, made where it is absent or null."""
    *parents, last = keys
    holder = _object(made, *parents)
    if holder.get(last) is None:
        holder[last] = []
    found = holder[last]
    if not isinstance(found, list):
        raise _odd(keys, "a list")
    return found


def _odd(keys: Iterable[str], wanted: str) -> CdiError:
    path = ".".join(keys)
    message = f"{path} of the OCI document must be {wanted}"
    return CdiError(CdiProblem(reason=CdiReason.BAD_OCI_DOCUMENT, message=message, path=path))
