"""Devices to inject by two libraries: spec files in two directories, names, and OCI documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from tests.cdi.oracle.differences import BOTH, NEW, OLD

Document = dict[str, Any]


@attrs.frozen(kw_only=True)
class Stage:
    """One injection.

    Attributes:
        files: directory (0 is the lower one), name and content of each spec file.
        names: of devices, in their order.
        document: the OCI document.
    """

    files: tuple[tuple[int, str, Document], ...]
    names: tuple[str, ...]
    document: Document


def staged(*edits: Document, document: Document | None = None, common: Document | None = None) -> Stage:
    """Devices 0, 1, … of one file, all of them injected."""
    devices = [{"name": str(number), "containerEdits": each} for number, each in enumerate(edits)]
    content = {"cdiVersion": "1.1.0", "kind": "vv.com/gpu", "devices": devices, "containerEdits": common or {}}
    names = tuple(f"vv.com/gpu={device['name']}" for device in devices)
    return Stage(files=((0, "a.json", content),), names=names, document={"ociVersion": "1.2.0", **(document or {})})


def settled_conflict() -> Stage:
    """Two files of the lower directory define a device, and one of the higher."""
    content = staged({"env": ["A=b"]}).files[0][2]
    files = ((0, "a.json", content), (0, "b.json", content), (1, "c.json", content))
    return Stage(files=files, names=("vv.com/gpu=0",), document={"ociVersion": "1.2.0"})


@attrs.frozen(kw_only=True)
class InjectionDifference:
    """One way in which injections differ.

    Attributes:
        name: as docs/cdi.md has it.
        releases: of the Go library, in which it shows.
        example: an injection that shows this one and no other.
        evened: both documents without what it makes differ.
        error: whether it explains that the Go library alone refuses, with these words.
        concerns: whether an injection can show it at all.
    """

    name: str
    releases: frozenset[str]
    example: Stage
    evened: Callable[[Document], Document] = attrs.field(default=lambda document: document)
    error: str = "$^"
    concerns: Callable[[Stage], bool] = attrs.field(default=lambda _: True)


def _changed(document: Document, change: Callable[[Any], Any], *keys: str) -> Document:
    """The document with another value at a path of keys, if there is one."""
    key, *others = keys
    if document.get(key) is None:
        return document
    return document | {key: _changed(document[key], change, *others) if others else change(document[key])}


def _each_once(items: list[Any]) -> list[Any]:
    return [json.loads(text) for text in dict.fromkeys(json.dumps(item, sort_keys=True) for item in items)]


def _hooks_and_rules_once(document: Document) -> Document:
    document = _changed(document, lambda hooks: {key: _each_once(stage) for key, stage in hooks.items()}, "hooks")
    return _changed(document, _each_once, "linux", "resources", "devices")


def _without_env(document: Document) -> Document:
    return _changed(document, lambda _: [], "process", "env")


def _without_devices_and_mounts(document: Document) -> Document:
    return _changed(_changed(document, lambda _: [], "linux", "devices"), lambda _: [], "mounts")


def _without_maps(document: Document) -> Document:
    def stripped(mount: Document) -> Document:
        options = [option for option in mount.get("options", ()) if option not in {"idmap", "ridmap"}]
        return {key: value for key, value in (mount | {"options": options}).items() if value}

    return _changed(document, lambda mounts: list(map(stripped, mounts)), "mounts")


def _has_one_path_twice(stage: Stage) -> bool:
    nodes = [node["path"] for node in stage.document.get("linux", {}).get("devices", ())]
    mounts = [mount["destination"] for mount in stage.document.get("mounts", ())]
    return len(nodes) > len(set(nodes)) or len(mounts) > len(set(mounts))


def _has_unmapped_user_namespace(stage: Stage) -> bool:
    linux = stage.document.get("linux", {})
    return _has_user_namespace(stage) and not (linux.get("uidMappings") and linux.get("gidMappings"))


def _has_user_namespace(stage: Stage) -> bool:
    return any(each["type"] == "user" for each in stage.document.get("linux", {}).get("namespaces", ()))


_HOOK_ONCE: Final = {"hookName": "poststop", "path": "/h"}
_BIND: Final = {"mounts": [{"hostPath": "/h", "containerPath": "/c", "type": "bind"}]}
_USER_NAMESPACE: Final[Document] = {"namespaces": [{"type": "user"}]}
_ONE_MAPPING: Final = [{"containerID": 0, "hostID": 1000, "size": 10}]
_MAPPINGS: Final[Document] = {"uidMappings": _ONE_MAPPING, "gidMappings": _ONE_MAPPING}
_UNRULED: Final = {"path": "/dev/made", "type": "u", "major": 9, "minor": 9}

INJECTION_DIFFERENCES: Final = (
    InjectionDifference(
        name="hooks and rules again",
        releases=BOTH,
        example=staged({"hooks": [_HOOK_ONCE]}, {"hooks": [_HOOK_ONCE]}),
        evened=_hooks_and_rules_once,
    ),
    InjectionDifference(
        name="a variable that is there",
        releases=OLD,
        example=staged({"env": ["A=new"]}, document={"process": {"cwd": "/", "env": ["A=old"]}}),
        evened=_without_env,
    ),
    InjectionDifference(
        name="mounts in a user namespace",
        releases=OLD,
        example=staged(_BIND, document={"linux": _USER_NAMESPACE | _MAPPINGS}),
        evened=_without_maps,
        concerns=_has_user_namespace,
    ),
    InjectionDifference(
        name="mounts in a user namespace without mappings",
        releases=NEW,
        example=staged(_BIND, document={"linux": _USER_NAMESPACE}),
        evened=_without_maps,
        concerns=_has_unmapped_user_namespace,
    ),
    InjectionDifference(
        name="one path twice in a document",
        releases=BOTH,
        example=staged(
            {"deviceNodes": [_UNRULED, _UNRULED | {"uid": 1}]}, document={"linux": {"devices": [_UNRULED] * 2}}
        ),
        evened=_without_devices_and_mounts,
        concerns=_has_one_path_twice,
    ),
    InjectionDifference(
        name="one network device of two devices",
        releases=NEW,
        example=staged(*[{"netDevices": [{"hostInterfaceName": "e0", "name": "n0"}]}] * 2),
        error="invalid linux net device, duplicate",
    ),
    InjectionDifference(
        name="a conflict that a higher directory settles",
        releases=BOTH,
        example=settled_conflict(),
        error="unresolvable CDI devices",
        concerns=lambda stage: len(stage.files) > 2,
    ),
)


def are_even(ours: Document, theirs: Document, differences: Iterable[InjectionDifference]) -> bool:
    """Whether these differences are all that there is between two documents."""
    for each in differences:
        ours, theirs = each.evened(ours), each.evened(theirs)
    return ours == theirs


def as_release_reads(stage: Stage, release: str) -> Stage:
    """1.1.0 refuses `permissions: none`: it gets others, since reading is not what is compared here."""
    if release not in OLD:
        return stage
    text = json.dumps([list(file) for file in stage.files]).replace('"permissions": "none"', '"permissions": "w"')
    return attrs.evolve(stage, files=tuple((at, name, content) for at, name, content in json.loads(text)))


def _words(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


def _some(strategy: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=1, max_size=most)


def _mostly_unlike(strategy: st.SearchStrategy[Any], key: str) -> st.SearchStrategy[Any]:
    """A list in which a key is seldom the same twice."""
    unlike = st.lists(strategy, max_size=3, unique_by=lambda item: item[key])
    return st.one_of(unlike, unlike, unlike, st.lists(strategy, max_size=3))


_PATHS: Final = _words("/dev/null", "/dev/zero", "/dev/null", "/dev/made")
_NODE: Final = st.fixed_dictionaries(
    {"path": _PATHS},
    optional={
        "hostPath": _words("/dev/null", "/dev/zero", "/dev/full", "/dev/absent", "/dev/stdin"),
        "type": _words("c", "c", "b", "u", "p"), "major": st.integers(0, 3), "minor": st.integers(0, 3),
        "fileMode": st.just(384), "permissions": _words("r", "rw", "none"), "uid": st.integers(0, 2),
        "gid": st.integers(0, 2),
    },
)  # fmt: skip
_HOOK: Final = st.fixed_dictionaries(
    {"hookName": _words("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"),
     "path": _words("/h", "/i")},
    optional={"args": st.just(["h", "x"]), "env": st.just(["E=1"]), "timeout": st.integers(1, 2)},
)  # fmt: skip
_MOUNT: Final = st.fixed_dictionaries(
    {"hostPath": _words("/h1", "/h2"), "containerPath": _words("/", "/a", "/a/b", "/a/b/", "/a/../c/d", "r/s", "/b")},
    optional={
        "options": st.lists(_words("ro", "bind", "rbind", "idmap"), max_size=3), "type": _words("bind", "tmpfs", "none")
    },
)  # fmt: skip
_EDITS: Final = st.fixed_dictionaries(
    {"env": _some(_words("A=1", "A=2", "B=1", "C=", "PATH=/x"))},
    optional={
        "deviceNodes": _some(_NODE, 2), "hooks": _some(_HOOK), "mounts": _some(_MOUNT),
        "netDevices": st.just([{"hostInterfaceName": "e0", "name": "n0"}, {"hostInterfaceName": "e1", "name": "n1"}]),
        "intelRdt": st.fixed_dictionaries({}, optional={
            "closID": _words("a", "b"), "schemata": st.just(["L2:0=1"]), "enableMonitoring": st.booleans(),
            "l3CacheSchema": st.just("L3:0=f"), "memBwSchema": st.just("MB:0=1"),
        }),
        "additionalGids": _some(st.integers(0, 4)),
    },
)  # fmt: skip
_MAPPING: Final = st.just(_ONE_MAPPING)
_RULE: Final = st.fixed_dictionaries(
    {"allow": st.booleans()}, optional={"type": _words("c", "a"), "major": st.just(1), "minor": st.just(3),
                                        "access": _words("rwm", "r")},
)  # fmt: skip
_LINUX: Final = st.fixed_dictionaries(
    {},
    optional={
        "devices": _mostly_unlike(
            st.fixed_dictionaries({"path": _PATHS, "type": st.just("c"), "major": st.just(9), "minor": st.just(9)}),
            "path",
        ),
        "resources": st.fixed_dictionaries({}, optional={"devices": st.lists(_RULE, max_size=3)}),
        "namespaces": st.lists(st.fixed_dictionaries({"type": _words("user", "mount")}), max_size=2),
        "uidMappings": _MAPPING,
        "gidMappings": _MAPPING,
        "netDevices": st.just({"e1": {"name": "old"}, "e9": {"name": "n9"}}),
        "intelRdt": st.just({"closID": "z", "memBwSchema": "M"}),
    },
)  # fmt: skip
_PROCESS: Final = st.fixed_dictionaries(
    {"cwd": st.just("/")},
    optional={
        "env": st.lists(_words("A=0", "A", "PATH=/bin", "Z=1"), max_size=4),
        "user": st.fixed_dictionaries(
            {"uid": st.integers(0, 2), "gid": st.integers(0, 2)},
            optional={"additionalGids": st.lists(st.integers(1, 5), max_size=3)},
        ),
    },
)  # fmt: skip
_DOCUMENT: Final = st.fixed_dictionaries(
    {"ociVersion": st.just("1.2.0")},
    optional={
        "process": _PROCESS, "linux": _LINUX,
        "mounts": _mostly_unlike(
            st.fixed_dictionaries({"destination": _words("/proc", "/a", "/a/b", "/", "/a/b/"), "source": st.just("s")}),
            "destination",
        ),
        "hooks": st.just({"poststop": [{"path": "/h"}], "prestart": [{"path": "/z"}]}),
    },
)  # fmt: skip


@st.composite
def injections(draw: st.DrawFn) -> Stage:
    """One to three files in two directories, and one to three names of devices that may be there."""
    files = []
    for number in range(draw(st.integers(1, 3))):
        names = draw(st.lists(_words("0", "1", "all"), min_size=1, max_size=2, unique=True))
        content = {
            "cdiVersion": draw(_words("1.1.0", "1.1.0", "1.1.0", "1.1.0", "0.3.0")),
            "kind": draw(_words("vv.com/gpu", "vv.com/gpu", "vv.com/nic")),
            "devices": [{"name": name, "containerEdits": draw(_EDITS)} for name in names],
            "containerEdits": draw(st.one_of(st.just({}), _EDITS)),
        }
        files.append((draw(st.integers(0, 1)), f"{number}.json", content))
    known = sorted({f"{content['kind']}={device['name']}" for _, _, content in files for device in content["devices"]})
    some = st.one_of(*[st.sampled_from(known)] * 9, st.just("vv.com/gpu=absent"))
    wanted = draw(st.lists(some, min_size=1, max_size=3, unique=True))
    document: Document = draw(_DOCUMENT)
    if draw(st.integers(0, 2)) == 0:
        document = document | {"linux": document.get("linux", {}) | _USER_NAMESPACE | _MAPPINGS}
    return Stage(files=tuple(files), names=tuple(wanted), document=document)
