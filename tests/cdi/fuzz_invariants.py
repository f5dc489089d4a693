"""What must hold whatever bytes come in: no exception but CdiError, what is written is read again, twice is once.

`make fuzz` looks for inputs that break it. The first byte of an input says what the rest is for.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import attrs

from actors.cdi import (
    CdiError,
    ContainerEdits,
    HostNode,
    Lstat,
    Spec,
    SpecFile,
    SpecFormat,
    encode,
    inject,
    is_qualified,
    merged,
    minimum_version,
    parse_kind,
    parse_name,
    permitted,
    read_spec,
    registry_of,
    request_key,
    requested_names,
    shares,
    split_name,
    validate,
)
from tests.fuzzing.promises import hold

BETWEEN: Final = b"\xff"
"""What cannot stand in a spec or a document, between the two."""

NODES: Final = {
    "/dev/null": HostNode(type="c", major=1, minor=3, mode=0o666),
    "/dev/zero": HostNode(type="c", major=1, minor=5, mode=0o666),
    "/dev/loop0": HostNode(type="b", major=7, minor=0, mode=0o660),
    "/dev/fifo": HostNode(type="p", mode=0o600),
    "/dev/stdin": HostNode(type=""),
}


def everything(path: str) -> HostNode:
    """A host that has a node at every path."""
    return NODES.get(path, HostNode(type="c", major=195, minor=len(path), mode=0o660))


def check(data: bytes) -> str:
    """Try one input, and return what for.

    Raises:
        BrokenPromiseError: the library is wrong; and anything that the library itself raises but CdiError.
    """
    target = TARGETS[data[0] % len(TARGETS)] if data else read
    target(data[1:])
    return target.__name__


def read(data: bytes) -> None:
    """A file is read or refused with reasons, and what was read can be written and read again."""
    reading = read_spec(data, "x.yaml")
    # To libyaml the end of a text is a line of its own, even without a line end before it.
    lines = sum(map(data.count, (b"\n", b"\r", b"\x85", b"\xa8", b"\xa9"))) + 2
    for problem in (*reading.problems, *reading.warnings):
        hold(str(problem).isprintable(), "a problem is one line that can be printed")
        hold(problem.line is None or 1 <= problem.line <= lines, "a problem's line is in the file")
    hold((reading.spec is None) == bool(reading.problems), "a file has either a spec or problems")
    if reading.spec is None:
        return
    hold(not validate(reading.spec), "what was read keeps the rules")
    _use(reading.spec)
    for spec_format in SpecFormat:
        try:
            written = encode(reading.spec, spec_format)
        except CdiError:
            hold(reading.warnings, "only what was warned of is not written")
            continue
        again = read_spec(written, "x.yaml")
        wanted = attrs.evolve(reading.spec, cdi_version=minimum_version(reading.spec))
        hold(again.spec == wanted, "what is written is read again as it was")
        hold(encode(wanted, spec_format) == written, "one spec is one file")


def _use(spec: Spec) -> None:
    registry = registry_of([SpecFile(path="x.yaml", spec=spec)])
    names = [device.name for device in spec.devices]
    edits = registry.resolve(spec.qualified(name) for name in names)
    hold(registry.names() == tuple(sorted(map(spec.qualified, names))), "every device has its name")
    hold(sum(len(group.names) for group in registry.aliases()) == len(names), "every device is in one group")
    hold(set(names[:1]) <= set(permitted(spec, names[:1])), "a device permits itself")
    shares(spec, names[:1])
    for document in ({}, {"process": {"env": ["A=1"]}, "mounts": [{"destination": "/"}]}):
        _inject(document, edits, lstat=everything)


def parse_names(data: bytes) -> None:
    """A name is split, and joined again it is the same."""
    text = data.decode("utf-8", "surrogateescape")
    _, _, device = split_name(text)
    hold(text.endswith(device), "the device is the end of its name")
    for parse in (parse_name, parse_kind):
        try:
            parsed = parse(text)
        except CdiError as error:
            hold(str(error).isprintable(), "a problem is one line that can be printed")
            continue
        joined = str(parsed) if parse is parse_name else "/".join(parsed)  # type: ignore[arg-type]  # a pair then
        hold(joined == text, "the parts of a name are the name")
    hold(is_qualified(text) == bool(_taken(lambda: parse_name(text))), "both say the same of a name")
    annotations = {"cdi.k8s.io/x": text, text: "v.com/c=d"}
    for names in _taken(lambda: requested_names(annotations)):
        hold(all(map(is_qualified, names[1])), "only qualified names are requested")
    front, _, back = text.partition("_")
    for key in _taken(lambda: request_key(front, back)):
        hold(key.startswith("cdi.k8s.io/"), "a key of a request has its prefix")


def _taken(call: Callable[[], Any]) -> list[Any]:
    try:
        return [call()]
    except CdiError:
        return []


def inject_raw(data: bytes) -> None:
    """A spec and an OCI document, both as bytes."""
    first, _, second = data.partition(BETWEEN)
    spec = read_spec(first, "x.json").spec
    try:
        document = json.loads(second, parse_constant=_refused)
    except (ValueError, RecursionError):
        return
    if spec is not None and isinstance(document, dict):
        _inject(document, merged((spec.container_edits, *(device.container_edits for device in spec.devices))))


def _refused(word: str) -> None:
    raise ValueError(word)


def inject_built(data: bytes) -> None:
    """Edits and a document made of small parts, so that they meet: the bytes choose."""
    choices = iter(data)
    spec = {
        "cdiVersion": "1.1.0",
        "kind": "vv.com/gpu",
        "devices": [{"name": "a", "containerEdits": _built_edits(choices)}],
    }
    reading = read_spec(json.dumps(spec).encode(), "x.json")
    if reading.spec is not None:
        _inject(_built_document(choices), reading.spec.devices[0].container_edits)


def _inject(document: dict[str, Any], edits: ContainerEdits, *, lstat: Lstat = NODES.get) -> None:
    before = copy.deepcopy(document)
    try:
        made = inject(document, edits, lstat=lstat)
    except CdiError:
        made = None
    hold(document == before, "the document that was given is not changed")
    if made is not None:
        hold(inject(made, edits, lstat=lstat) == made, "a second injection changes nothing")


def _pick(choices: Iterator[int], *of: Any) -> Any:
    return of[next(choices, 0) % len(of)]


def _several(choices: Iterator[int], make: Callable[[Iterator[int]], Any]) -> list[Any]:
    return [make(choices) for _ in range(_pick(choices, 0, 1, 2, 3))]


def _path(choices: Iterator[int]) -> str:
    return str(_pick(choices, *NODES, "/dev/absent", "/a", "/a/b", "/", "a", "/a/../b", "/a/"))


def _env(choices: Iterator[int]) -> str:
    return str(_pick(choices, "A=1", "A=2", "B=", "AB=1", "A==", "B=1"))


def _node(choices: Iterator[int]) -> dict[str, Any]:
    node = {"path": _path(choices)}
    for key, *values in (
        ("hostPath", *NODES), ("type", "c", "b", "u", "p"), ("major", 0, 1, 7), ("minor", 0, 3), ("fileMode", 0, 438),
        ("permissions", "r", "rwm", "none"), ("uid", 0, 5), ("gid", 0, 5),
    ):  # fmt: skip
        if _pick(choices, False, True):
            node[key] = _pick(choices, *values)
    return node


def _hook(choices: Iterator[int]) -> dict[str, Any]:
    hook = {"hookName": _pick(choices, "prestart", "poststop", "createContainer"), "path": _path(choices)}
    return hook | _pick(choices, {}, {"args": ["a"]}, {"timeout": 1}, {"env": ["A=1"]}, {"args": []})


def _mount(choices: Iterator[int]) -> dict[str, Any]:
    mount = {"hostPath": _path(choices), "containerPath": _path(choices)}
    return mount | _pick(
        choices, {}, {"type": "bind"}, {"options": ["rbind"]}, {"options": ["bind", "idmap"]}, {"type": ""}
    )


def _built_edits(choices: Iterator[int]) -> dict[str, Any]:
    return {
        "env": ["A=0", *_several(choices, _env)],
        "deviceNodes": _several(choices, _node),
        "hooks": _several(choices, _hook),
        "mounts": _several(choices, _mount),
        "netDevices": _pick(choices, [], [{"hostInterfaceName": "e0", "name": "n0"}]),
        "additionalGids": _several(choices, lambda each: _pick(each, 0, 1, 2)),
    } | _pick(choices, {}, {"intelRdt": {}}, {"intelRdt": {"closID": "a"}})


def _device(choices: Iterator[int]) -> dict[str, Any]:
    return {"path": _path(choices), "type": "c", "major": 1, "minor": _pick(choices, 3, 5)}


def _rule(choices: Iterator[int]) -> dict[str, Any]:
    rest = _pick(choices, {}, {"access": "rwm"}, {"type": "c", "major": 1, "minor": 3, "access": "rwm"})
    return {"allow": _pick(choices, True, False)} | rest


def _built_document(choices: Iterator[int]) -> dict[str, Any]:
    process = {
        "env": _several(choices, lambda each: _pick(each, "A=9", "A", "C", "B=2", "", 5)),
        "user": {
            "uid": _pick(choices, 0, 5, None),
            "gid": _pick(choices, 0, 5),
            "additionalGids": _pick(choices, None, [1]),
        },
    }
    linux = {
        "devices": _several(choices, _device),
        "resources": {"devices": _several(choices, _rule)},
        "namespaces": _pick(choices, [], [{"type": "user"}], None),
        "uidMappings": [{}], "gidMappings": [{}],
    }  # fmt: skip
    mounts = _several(choices, lambda each: {"destination": _path(each), "source": _pick(each, "s", "/a")})
    hooks = {"poststop": _several(choices, lambda each: {"path": _path(each)})}
    whole = {"process": process, "linux": linux, "mounts": mounts, "hooks": hooks}
    kept = [key for key in whole if _pick(choices, True, True, False)]
    return {key: whole[key] for key in kept}


TARGETS: Final = (read, parse_names, inject_raw, inject_built)
