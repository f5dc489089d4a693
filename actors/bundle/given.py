"""A bundle that somebody else prepared: read strictly, never written to, and said anew for our sandbox.

Everything that Greenroom does not name stays as it was given, hooks and unknown members included: whoever assigns an
actor may run what he likes in it, and hooks are his. What is named: the root's path and bind sources become absolute,
there is no terminal, the annotations are ours, of namespaces only the network may be an existing one, cgroups are not
the bundle's to choose, every device node has a mode, and where a device is claimed CAP_MKNOD goes and the seccomp
profile, which counts only there, also refuses to make device nodes.

Source: OCI runtime specification 1.0.2, config.md and config-linux.md.
"""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from actors.strict_json import StrictJsonError, member, parse_object, type_name
from statemachine.problem import Problem, ProblemError, Step
from statemachine.reasons import Reason

from . import capabilities, seccomp
from .config import limited
from .mounts import normalised_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actors.assignment import Resources
    from actors.strict_json import JsonObject

    from .capabilities import Claims
    from .config import Membership
    from .mounts import Mount

CONFIG_BYTES_MAX: Final = 4 << 20

_OCI_VERSION: Final = re.compile(r"1\.\d+\.\d+(?:[-+].*)?")
_ID_MAX: Final = (1 << 32) - 1
_DEVICE_MODE: Final = 0o666
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "": ("ociVersion", "process", "root", "mounts", "annotations", "linux"),
        "process": ("args", "env", "user", "capabilities", "terminal", "consoleSize"),
        "user": ("uid", "gid", "additionalGids"),
        "capabilities": capabilities.SETS,
        "root": ("path", "readonly"),
        "mounts": ("destination", "type", "source", "options"),
        "linux": ("cgroupsPath", "namespaces", "resources", "devices", "seccomp"),
        "namespaces": ("type", "path"),
        "resources": ("memory", "cpu"),
        "devices": ("path", "type", "fileMode"),
        "seccomp": ("defaultAction", "syscalls"),
        "syscalls": ("names", "action"),
    }
)
"""The members that are read or said anew here, by the name of the object that has them."""


def parse_config(data: bytes, *, subject: str, step: Step = Step.CREATE) -> JsonObject:
    """Parse a given config.json and check the members that Greenroom or any runtime relies on.

    Args:
        data: the file's bytes, at most `CONFIG_BYTES_MAX`.
        subject: the file, as the problems name it.
        step: the step that the problems belong to.

    Raises:
        ProblemError: InvalidBundle, once for each fault, with its JSON path.
    """
    try:
        document = parse_object(data)
    except StrictJsonError as error:
        raise ProblemError(_problem(subject, error.path, error.message, step)) from error
    faults = [_problem(subject, path, message, step) for path, message in _faults(document)]
    if faults:
        raise ProblemError(*faults)
    return document


def given_config(
    given: JsonObject,
    bundle: Path,
    *,
    membership: Membership,
    limits: Resources,
    claims: Claims,
    extra_mounts: tuple[Mount, ...] = (),
) -> JsonObject:
    """Return the config.json for our sandbox of a bundle that `parse_config` has read; the given one is not changed."""
    config: JsonObject = copy.deepcopy(given)
    config["root"]["path"] = posixpath.join(str(bundle), config["root"]["path"])
    config["annotations"] = {**(config.get("annotations") or {}), **membership.annotations()}
    config["process"] = {key: value for key, value in config["process"].items() if value is not None}
    config["process"]["terminal"] = False
    config["process"].pop("consoleSize", None)
    _restrict_capabilities(config["process"], claims)
    config["mounts"] = [_own_mount(mount, bundle) for mount in config.get("mounts") or []]
    config["mounts"] += [mount.as_json() for mount in extra_mounts]
    config["linux"] = seccomp.confined(_own_linux(config.get("linux") or {}, limits), claims)
    return config


def _restrict_capabilities(process: JsonObject, claims: Claims) -> None:
    sets = process.get("capabilities") or {}
    for name in capabilities.SETS:
        if sets.get(name):
            sets[name] = capabilities.allowed(sets[name], claims)


def _own_mount(mount: JsonObject, bundle: Path) -> JsonObject:
    options = mount.get("options") or []
    is_bind = mount.get("type") == "bind" or "bind" in options or "rbind" in options
    own = dict(mount)
    if is_bind and mount.get("source"):
        # Relative sources are below the bundle, and the config.json that runsc reads stands elsewhere.
        own["source"] = posixpath.join(str(bundle), mount["source"])
    if options:
        own["options"] = normalised_options(options)
    return own


def _own_linux(linux: JsonObject, limits: Resources) -> JsonObject:
    own = {key: value for key, value in linux.items() if key != "cgroupsPath"}
    own["namespaces"] = [_own_namespace(namespace) for namespace in linux.get("namespaces") or []]
    if linux.get("devices"):
        own["devices"] = [_own_device(device) for device in linux["devices"]]
    limit = limited(limits)
    if limit:
        # The assignment's number wins; what it does not speak of stays.
        resources = linux.get("resources") or {}
        own["resources"] = {**resources, **{key: {**(resources.get(key) or {}), **limit[key]} for key in limit}}
    return own


def _own_namespace(namespace: JsonObject) -> JsonObject:
    if namespace["type"] == "network":
        return namespace
    return {key: value for key, value in namespace.items() if key != "path"}


def _own_device(device: JsonObject) -> JsonObject:
    # Measured on runsc 20240729: the sandbox panics over a node without a mode, which OCI allows.
    return device if device.get("fileMode") is not None else {**device, "fileMode": _DEVICE_MODE}


# ------------------------------------------------------------------------------------------------------------- checks


def _faults(document: JsonObject) -> Iterator[tuple[str, str]]:
    yield from _needed(document, "$", "ociVersion", _fault_of_version)
    yield from _objects(document)
    yield from _faults_of_spelling(document)
    process, root = document.get("process"), document.get("root")
    if isinstance(process, dict):
        yield from _needed(process, "$.process", "args", _fault_of_args)
        yield from _optional(process, "$.process", "env", _fault_of_strings)
        yield from _faults_of_object(process.get("capabilities"), "$.process.capabilities", _CAPABILITIES)
        yield from _faults_of_object(process.get("user"), "$.process.user", _USER)
    if isinstance(root, dict):
        yield from _needed(root, "$.root", "path", _fault_of_path)
    yield from _optional(document, "$", "annotations", _fault_of_annotations)
    yield from _faults_of_list(document.get("mounts"), "$.mounts", "destination", _fault_of_mount)
    linux = document.get("linux")
    if isinstance(linux, dict):
        yield from _faults_of_list(linux.get("namespaces"), "$.linux.namespaces", "type", _no_fault)
        yield from _faults_of_object(linux.get("resources"), "$.linux.resources", _RESOURCES)
        yield from _faults_of_list(linux.get("devices"), "$.linux.devices", "path", _fault_of_device)
        yield from seccomp.faults_of(linux.get("seccomp"), "$.linux.seccomp")


def _faults_of_spelling(document: JsonObject) -> Iterator[tuple[str, str]]:
    """Find members that runsc takes for one of ours although they are written in another way.

    Go reads `Capabilities` and `capabilities` as the same member; what we look for under the one name and do not find
    would be said to runsc under the other.
    """
    waiting: list[tuple[str, str, object]] = [("", "$", document)]
    while waiting:
        name, path, value = waiting.pop()
        if isinstance(value, list):
            waiting.extend((name, member(path, index), each) for index, each in enumerate(value))
        elif isinstance(value, dict) and name in _MEMBERS:
            known = {each.casefold(): each for each in _MEMBERS[name]}
            for key, each in value.items():
                meant = known.get(key.casefold(), key)
                if key != meant:
                    yield member(path, key), f"must be written {meant}, as which runsc reads it"
                waiting.append((key, member(path, key), each))


def _objects(document: JsonObject) -> Iterator[tuple[str, str]]:
    for key in ("process", "root"):
        if key not in document:
            yield member("$", key), "is missing"
        elif not isinstance(document[key], dict):
            yield member("$", key), f"must be an object, is {type_name(document[key])}"
    if not isinstance(document.get("linux") or {}, dict):
        yield "$.linux", f"must be an object, is {type_name(document['linux'])}"


def _needed(
    holder: JsonObject, path: str, key: str, fault_of: Callable[[Any], str | None]
) -> Iterator[tuple[str, str]]:
    fault = fault_of(holder[key]) if key in holder else "is missing"
    if fault is not None:
        yield member(path, key), fault


def _optional(
    holder: JsonObject, path: str, key: str, fault_of: Callable[[Any], str | None]
) -> Iterator[tuple[str, str]]:
    # Go's encoder writes null for an absent list, and every runtime reads it so.
    if holder.get(key) is not None:
        yield from _needed(holder, path, key, fault_of)


def _no_fault(_value: object) -> None:
    return None


def _fault_of_version(value: object) -> str | None:
    if isinstance(value, str) and _OCI_VERSION.fullmatch(value):
        return None
    return "must be a version 1.x.y of the OCI runtime specification"


def _fault_of_strings(value: object) -> str | None:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return None
    return "must be an array of strings"


def _fault_of_args(value: object) -> str | None:
    fault = _fault_of_strings(value)
    if fault is None and isinstance(value, list) and not (value and value[0]):
        return "must name a command"
    return fault


def _fault_of_path(value: object) -> str | None:
    if not isinstance(value, str) or not value:
        return "must be a non-empty string"
    if "\0" in value:
        return "must not contain NUL"
    if not value.startswith("/") and ".." in value.split("/"):
        return "must stay below the bundle when it is relative"
    return None


def _fault_of_annotations(value: object) -> str | None:
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return None
    return "must be an object of strings"


def _fault_of_mount(mount: JsonObject) -> str | None:
    if any(mount.get(key) is not None and not isinstance(mount[key], str) for key in ("type", "source")):
        return "type and source must be strings"
    return None if mount.get("options") is None else _fault_of_strings(mount["options"])


def _faults_of_list(
    value: object, path: str, key: str, fault_of: Callable[[JsonObject], str | None]
) -> Iterator[tuple[str, str]]:
    """Check an array of objects, each with one string that names it."""
    if value is None:
        return
    if not isinstance(value, list):
        yield path, f"must be an array, is {type_name(value)}"
        return
    for index, element in enumerate(value):
        at = member(path, index)
        if not isinstance(element, dict):
            yield at, f"must be an object, is {type_name(element)}"
        elif not isinstance(element.get(key), str):
            yield member(at, key), "must be a string"
        else:
            fault = fault_of(element)
            if fault is not None:
                yield at, fault


def _faults_of_object(
    value: object, path: str, members: Mapping[str, Callable[[Any], str | None]]
) -> Iterator[tuple[str, str]]:
    """Check an object that may be absent, and those of its members that are there."""
    if value is None:
        return
    if not isinstance(value, dict):
        yield path, f"must be an object, is {type_name(value)}"
        return
    for name, fault_of in members.items():
        yield from _optional(value, path, name, fault_of)


def _fault_of_id(value: object) -> str | None:
    return None if type(value) is int and 0 <= value <= _ID_MAX else f"must be a whole number from 0 to {_ID_MAX}"


def _fault_of_ids(value: object) -> str | None:
    if isinstance(value, list) and all(_fault_of_id(each) is None for each in value):
        return None
    return f"must be an array of whole numbers from 0 to {_ID_MAX}"


def _fault_of_device(device: JsonObject) -> str | None:
    return None if isinstance(device.get("type"), str) else "type must be a string"


def _fault_of_object(value: object) -> str | None:
    return None if isinstance(value, dict) else f"must be an object, is {type_name(value)}"


_CAPABILITIES: Final = dict.fromkeys(capabilities.SETS, _fault_of_strings)
_USER: Final = {"uid": _fault_of_id, "gid": _fault_of_id, "additionalGids": _fault_of_ids}
_RESOURCES: Final = dict.fromkeys(("memory", "cpu"), _fault_of_object)


def _problem(subject: str, path: str, message: str, step: Step) -> Problem:
    return Problem(step=step, reason=Reason.INVALID_BUNDLE, subject=subject, message=f"{path} {message}")
