"""One entry of `spec.containers`, field by field.

What DESIGN leaves open is decided as Kubernetes does: the argv is `command` followed by `args`; `env` is a list of
`{name, value}` of which the last of a name wins. `user` is a number, `"uid"`, `"uid:gid"` or
`{uid, gid, additionalGids}`, numbers all, since names would have to be looked up inside the image.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import attrs

from statemachine.reasons import Reason

from .assignment import Bundle, Container, Rootfs, User, VolumeMount, WakeupProbe
from .bundle.mounts import OURS, is_within
from .capabilities import CAPABILITIES
from .document import RefusedError, ScalarKind, ScalarNode, Spot
from .document.decoding import Field, Record, attempt
from .document.fields import any_text, given_text, list_of, text_like, whole
from .document.wording import nearest, shown
from .given_paths import GivenPaths, PathUse, absolute_path
from .names import container_name, label
from .probes import ARGUMENTS_MAX, wakeup_probe
from .resources import ResourceFields, resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .document import Node

_VARIABLES_MAX: Final = 1024
_MOUNTS_MAX: Final = 64
_GROUPS_MAX: Final = 1024
_ID_MAX: Final = (1 << 32) - 2
"""The kernel takes 2^32 - 1 for "leave as it is"."""
_ROOTFS_FIELDS: Final = ("command", "args", "env", "workingDir", "user", "capabilities")
_FIELDS: Final = (
    "name", "bundle", "rootfs", *_ROOTFS_FIELDS, "imageDigest", "resources", "volumeMounts", "wakeupProbe",
)  # fmt: skip
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128}")
_VARIABLE_NAME: Final = re.compile(r"[ -<>-~]+")
_USER: Final = re.compile(r"(?P<uid>0|[1-9][0-9]{0,9})(?::(?P<gid>0|[1-9][0-9]{0,9}))?")

_identity = whole(0, _ID_MAX)
_digest = text_like(_DIGEST, "sha256: (or sha384:, sha512:) and its hex digits in lower case")
_variable_name = text_like(_VARIABLE_NAME, "printable ASCII characters other than =")


@attrs.frozen(kw_only=True)
class _PlacedMount:
    mount: VolumeMount
    name_spot: Spot
    path_spot: Spot


@attrs.frozen(kw_only=True)
class ContainerFields:
    """A container while other parts of the document are still to be looked at."""

    name: Field[str]
    source: Field[Rootfs | Bundle]
    image_digest: Field[str | None]
    resources: Field[ResourceFields]
    volume_mounts: Field[tuple[_PlacedMount, ...]]
    wakeup_probe: Field[WakeupProbe | None]

    def build(self) -> Container:
        """The container.

        Raises:
            RefusedError: a field of it is refused.
        """
        return Container(
            name=self.name.value,
            source=self.source.value,
            image_digest=self.image_digest.value,
            limits=self.resources.value.build(),
            requests=self.resources.value.build_requests(),
            volume_mounts=tuple(placed.mount for placed in self.volume_mounts.value),
            wakeup_probe=self.wakeup_probe.value,
        )


def container_fields(node: Node, spot: Spot, paths: GivenPaths) -> ContainerFields:
    """Decode one container; only what is no mapping at all is refused as a whole."""
    record = Record.closed(node, spot, _FIELDS)
    name = record.required("name", container_name)
    owner = f"container {name.value}" if name.is_usable else spot.path
    return ContainerFields(
        name=name,
        source=attempt(spot, lambda: _source(record, owner, paths)),
        image_digest=record.optional("imageDigest", _digest, None),
        resources=record.optional("resources", lambda part, at: resources(part, at, owner), ResourceFields()),
        volume_mounts=record.optional("volumeMounts", list_of(_volume_mount, most=_MOUNTS_MAX), ()),
        wakeup_probe=record.optional("wakeupProbe", wakeup_probe, None),
    )


def check_mounts(containers: Iterable[ContainerFields], volumes: Field[tuple[str, ...]]) -> None:
    """Report mounts of volumes that the actor does not have, and mounts over or within each other."""
    for container in containers:
        mounts = container.volume_mounts
        if mounts.is_given and mounts.is_usable:
            _check_mounts_of_one(mounts.value, volumes)


def _check_mounts_of_one(mounts: tuple[_PlacedMount, ...], volumes: Field[tuple[str, ...]]) -> None:
    taken: list[str] = []
    for placed in mounts:
        name, path = placed.mount.name, placed.mount.mount_path
        if volumes.is_usable and name not in volumes.value:
            placed.name_spot.report(Reason.INVALID_VALUE, f"spec.durableVolumes has no {shown(name)}")
        for other in taken:
            if path == other:
                placed.path_spot.report(Reason.INVALID_VALUE, f"another volume is mounted at {shown(path)} already")
            elif is_within(path, other) or is_within(other, path):
                message = f"{shown(path)} and {shown(other)}, where another volume is mounted, are within each other"
                placed.path_spot.report(Reason.INVALID_VALUE, message)
        taken.append(path)


def _source(record: Record, owner: str, paths: GivenPaths) -> Rootfs | Bundle:
    kind = record.require_one("bundle", "rootfs")
    if kind == "bundle":
        return _bundle(record, owner, paths)
    return _rootfs(record, owner, paths)


def _bundle(record: Record, owner: str, paths: GivenPaths) -> Bundle:
    path = record.required("bundle", _path(owner, PathUse.BUNDLE, paths))
    extra = [name for name in _ROOTFS_FIELDS if name in record]
    for name in extra:
        message = f"{name} belongs to a rootfs; the bundle's own config.json says it"
        record.at_key(name).report(Reason.INVALID_VALUE, message)
    if extra:
        raise RefusedError
    return Bundle(path.value)


def _rootfs(record: Record, owner: str, paths: GivenPaths) -> Rootfs:
    arguments = list_of(any_text, most=ARGUMENTS_MAX)
    path = record.required("rootfs", _path(owner, PathUse.ROOTFS, paths))
    command = record.optional("command", arguments, ())
    args = record.optional("args", arguments, ())
    env = record.optional("env", list_of(_variable, most=_VARIABLES_MAX), ())
    working_dir = record.optional("workingDir", absolute_path, "/")
    user = record.optional("user", _user, User())
    capabilities = record.optional("capabilities", list_of(_capability, most=len(CAPABILITIES)), None)
    return Rootfs(
        path=path.value,
        argv=_argv(record, owner, command, args),
        env=tuple(dict(env.value).items()),
        working_dir=working_dir.value,
        user=user.value,
        capabilities=None if capabilities.value is None else tuple(dict.fromkeys(capabilities.value)),
    )


def _path(owner: str, use: PathUse, paths: GivenPaths) -> Callable[[Node, Spot], Path]:
    return lambda node, spot: paths.resolve(node, spot, owner=owner, use=use)


def _argv(record: Record, owner: str, command: Field[tuple[str, ...]], args: Field[tuple[str, ...]]) -> tuple[str, ...]:
    argv = command.value + args.value
    if not argv:
        record.at_key("command").refuse(Reason.MISSING_FIELD, f"{owner} has a rootfs but neither command nor args")
    if not argv[0]:
        record.at("command" if command.value else "args").refuse(Reason.INVALID_VALUE, f"{owner}: argv[0] is empty")
    return argv


def _variable(node: Node, spot: Spot) -> tuple[str, str]:
    record = Record.closed(node, spot, ("name", "value"))
    name = record.required("name", _variable_name)
    value = record.optional("value", any_text, "")
    return name.value, value.value


def _volume_mount(node: Node, spot: Spot) -> _PlacedMount:
    record = Record.closed(node, spot, ("name", "mountPath"))
    name = record.required("name", label)
    path = record.required("mountPath", _mount_path)
    mount = VolumeMount(name=name.value, mount_path=path.value)
    return _PlacedMount(mount=mount, name_spot=name.spot, path_spot=path.spot)


def _mount_path(node: Node, spot: Spot) -> str:
    path = absolute_path(node, spot).rstrip("/")
    if not path:
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} cannot be the root of the container")
    if any(name in {"", ".", ".."} for name in path.split("/")[1:]):
        spot.refuse(Reason.INVALID_VALUE, f"{spot.name} {shown(path)} must be written without `.`, `..` and `//`")
    for own in OURS:
        if is_within(path, own) or is_within(own, path):
            spot.refuse(Reason.INVALID_VALUE, f"{spot.name} {shown(path)}: no volume can lie over or within {own}")
    return path


def _capability(node: Node, spot: Spot) -> str:
    name = given_text(node, spot)
    if name not in CAPABILITIES:
        guess = nearest(name, CAPABILITIES)
        better = f"; did you mean {guess}?" if guess else ""
        spot.refuse(Reason.INVALID_VALUE, f"{shown(name)} is no capability of Linux{better}")
    return name


def _user(node: Node, spot: Spot) -> User:
    if isinstance(node, ScalarNode):
        return _user_in_short(node, spot)
    record = Record.closed(node, spot, ("uid", "gid", "additionalGids"))
    uid = record.required("uid", _identity)
    gid = record.optional("gid", _identity, 0)
    groups = record.optional("additionalGids", list_of(_identity, most=_GROUPS_MAX), ())
    return User(uid=uid.value, gid=gid.value, additional_gids=groups.value)


def _user_in_short(node: ScalarNode, spot: Spot) -> User:
    # A JSON number is as good as its digits in quotes.
    text = node.text if node.kind is ScalarKind.NUMBER else given_text(node, spot)
    match = _USER.fullmatch(text)
    uid, gid = (int(match["uid"]), int(match["gid"] or 0)) if match else (-1, -1)
    if not (0 <= uid <= _ID_MAX and 0 <= gid <= _ID_MAX):
        spot.refuse(Reason.INVALID_VALUE, f'{spot.name} {shown(text)} must be "uid" or "uid:gid" in numbers')
    return User(uid=uid, gid=gid)
