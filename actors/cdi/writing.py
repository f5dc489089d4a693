"""Specs into files: the smallest version that has every feature used, the same bytes for the same spec, atomically.

What is written is read alike by this library, by Go's and by any YAML or JSON reader: every text is in double quotes,
with only those escapes that both formats have.
"""

from __future__ import annotations

import enum
import json
import posixpath
import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from .decoding import FIELD_NAMES
from .names import parse_kind
from .problems import CdiError, CdiProblem, CdiReason, quoted, raise_if_any
from .scanning import cleaned
from .validation import validate_for_writing
from .versions import known_version, minimum_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .model import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, Spec
    from .ports import WritableSpecFiles

_Object = dict[str, Any]
# YAML reads none of these unescaped, or takes them for line breaks.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_UNWRITABLE: Final = re.compile("[\0\ud800-\udfff]")


class SpecFormat(enum.StrEnum):
    """How a spec is written; the value is the file's suffix."""

    JSON = ".json"
    YAML = ".yaml"


class Existing(enum.Enum):
    """What becomes of a file that is there already."""

    REPLACED = "replaced"
    KEPT = "kept"


def to_dict(spec: Spec) -> _Object:
    """The spec as JSON has it, its version as it stands; what is absent is left out, an explicit owner 0 is not."""
    return _without_empty(
        {
            "cdiVersion": spec.cdi_version,
            "kind": spec.kind,
            "annotations": dict(sorted(spec.annotations.items())),
            "devices": [_device(device) for device in spec.devices],
            "containerEdits": _edits(spec.container_edits),
        }
    )


def encode(spec: Spec, spec_format: SpecFormat) -> bytes:
    """The bytes of a file, in the smallest version that has every feature of the spec.

    Raises:
        CdiError: with everything that is wrong with the spec, and with what readers take though SPEC.md forbids it.
    """
    if not spec.cdi_version or known_version(spec.cdi_version):
        spec = attrs.evolve(spec, cdi_version=minimum_version(spec))
    content = to_dict(spec)
    raise_if_any((*validate_for_writing(spec), *_unwritable(content, ())))
    text = _json(content, indent=2) if spec_format is SpecFormat.JSON else "\n".join(_yaml(content, ""))
    return f"{text}\n".encode()


def spec_name(kind: str) -> str:
    """The name of the one spec file of a kind, without suffix: `vendor-class`.

    Raises:
        CdiError: BadKind.
    """
    vendor, class_name = parse_kind(kind)
    return f"{vendor}-{class_name}"


def transient_name(kind: str, transient_id: str) -> str:
    """The name of a spec file that lives as long as what `transient_id` names: a container, a claim.

    Raises:
        CdiError: BadKind.
    """
    return f"{spec_name(kind)}_{transient_id.replace('/', '_')}"


def spec_path(name: str, directories: Sequence[str]) -> str:
    """Where a spec file of this name is written: in the directory of the highest priority, `.yaml` if it has no suffix.

    Raises:
        CdiError: BadName, for a name that leads elsewhere.
    """
    if not name or "/" in name or name in {".", ".."} or "\0" in name:
        raise CdiError(
            CdiProblem(reason=CdiReason.BAD_NAME, message=f"{quoted(name)} is no name of a spec file", value=name)
        )
    file = name if name.endswith(tuple(SpecFormat)) else name + SpecFormat.YAML
    return posixpath.join(cleaned(directories)[-1], file)


def write_spec(
    files: WritableSpecFiles,
    spec: Spec,
    name: str,
    directories: Sequence[str],
    existing: Existing = Existing.REPLACED,
) -> str:
    """Write a spec atomically into the directory of the highest priority, and return its path.

    Raises:
        CdiError: the spec is wrong (then nothing is written), or NotWritten.
    """
    path = spec_path(name, directories)
    data = encode(spec, SpecFormat(posixpath.splitext(path)[1]))
    write = files.replace if existing is Existing.REPLACED else files.create
    try:
        write(path, data)
    except OSError as error:
        raise _not_written(path, error) from None
    return path


def remove_spec(files: WritableSpecFiles, name: str, directories: Sequence[str]) -> None:
    """Remove what `write_spec` wrote; that it is not there is fine.

    Raises:
        CdiError: NotWritten.
    """
    path = spec_path(name, directories)
    try:
        files.remove(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: str, error: OSError) -> CdiError:
    words = error.strerror or str(error) or type(error).__name__
    return CdiError(CdiProblem(reason=CdiReason.NOT_WRITTEN, message=f"cannot be written: {words}", file=path))


def _device(device: Device) -> _Object:
    annotations = dict(sorted(device.annotations.items()))
    return {
        "name": device.name,
        **_without_empty({"annotations": annotations}),
        "containerEdits": _edits(device.container_edits),
    }


def _edits(edits: ContainerEdits) -> _Object:
    content = _without_empty(
        {
            "env": list(edits.env),
            "deviceNodes": [_node(node) for node in edits.device_nodes],
            "netDevices": [
                {"hostInterfaceName": device.host_interface_name, "name": device.name} for device in edits.net_devices
            ],
            "hooks": [_hook(hook) for hook in edits.hooks],
            "mounts": [_mount(mount) for mount in edits.mounts],
        }
    )
    if edits.intel_rdt is not None:
        content["intelRdt"] = _rdt(edits.intel_rdt)
    if edits.additional_gids:
        content["additionalGids"] = list(edits.additional_gids)
    return content


def _node(node: DeviceNode) -> _Object:
    numbers = {"major": node.major, "minor": node.minor}
    content = {"path": node.path, "hostPath": node.host_path, "type": node.type, **numbers}
    owned = {"fileMode": node.file_mode, "permissions": node.permissions or None, "uid": node.uid, "gid": node.gid}
    return _without_empty(content) | {key: value for key, value in owned.items() if value is not None}


def _hook(hook: Hook) -> _Object:
    content = _without_empty(
        {"hookName": hook.hook_name, "path": hook.path, "args": list(hook.args), "env": list(hook.env)}
    )
    return content | ({} if hook.timeout is None else {"timeout": hook.timeout})


def _mount(mount: Mount) -> _Object:
    return _without_empty(
        {
            "hostPath": mount.host_path,
            "containerPath": mount.container_path,
            "options": list(mount.options),
            "type": mount.type,
        }
    )


def _rdt(rdt: IntelRdt) -> _Object:
    content = _without_empty(
        {"closID": rdt.clos_id, "l3CacheSchema": rdt.l3_cache_schema, "memBwSchema": rdt.mem_bw_schema}
    )
    if rdt.schemata is not None:
        content["schemata"] = list(rdt.schemata)
    return content | ({"enableMonitoring": True} if rdt.enable_monitoring else {})


def _without_empty(content: Mapping[str, Any]) -> _Object:
    return {key: value for key, value in content.items() if value}


def _unwritable(content: object, path: tuple[str | int, ...]) -> Iterator[CdiProblem]:
    match content:
        case dict():
            for key, value in content.items():
                yield from _unwritable(key, path)
                yield from _unwritable(value, (*path, key))
        case list():
            for index, item in enumerate(content):
                yield from _unwritable(item, (*path, index))
        case str() if _UNWRITABLE.search(content):
            message = f"{quoted(content)} holds NUL or half of a surrogate pair"
            where = ".".join(map(str, path))
            yield CdiProblem(reason=CdiReason.BAD_TEXT, message=message, path=where, value=content)


def _json(content: object, indent: int | None = None) -> str:
    text = json.dumps(content, ensure_ascii=False, indent=indent)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _yaml(content: object, indent: str) -> Iterator[str]:
    """The lines of a mapping or list that is not empty, in block style."""
    if isinstance(content, dict):
        for key, value in content.items():
            # A key that is data may be anything, `on` and `null` too.
            front = f"{indent}{key if key in FIELD_NAMES else _json(key)}:"
            if isinstance(value, dict | list) and value:
                yield front
                yield from _yaml(value, f"{indent}  ")
            else:
                yield f"{front} {_json(value)}"
    elif isinstance(content, list):
        for item in content:
            if isinstance(item, dict) and item:
                first, *others = _yaml(item, f"{indent}  ")
                yield f"{indent}- {first.lstrip(' ')}"
                yield from others
            else:
                yield f"{indent}- {_json(item)}"
