"""A CDI spec whose paths are those of another root: what was written on the host, as the pod sees it, and back.

A spec names files as whoever wrote it sees them. On the host a driver may be below `/run/nvidia/driver` or at `/`, and
the pod has the same files below another directory; without this, every mount of a host's spec would be of nothing.
Only what is outside containers is rewritten: what a container sees under which name stays as it was.

Paths are judged by their text, as the container toolkit does it; a root is a directory, so that `/driver` has nothing
to do with `/driver-backup`.

Source: facts of nvidia-ctk, section 7 (the device plugin); NVIDIA container toolkit 1.20, host roots.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.cdi import ContainerEdits, DeviceNode, Hook, Mount, Spec

_PROGRAM_IN_CONTAINER: Final = frozenset({"startContainer"})
"""Stages of hooks whose program itself is a file of the container."""
_ARGUMENTS_IN_CONTAINER: Final = frozenset({"createContainer", "startContainer"})
"""Stages of hooks that work on a container's file system, so that their arguments are paths in there."""
_LINK: Final = "::"


def _directory(path: str) -> str:
    if not path.startswith("/"):
        message = f"{path!r:.200} is no absolute path"
        raise ValueError(message)
    return posixpath.normpath(f"/{path.lstrip('/')}")


@attrs.frozen
class Rerooting:
    """From one root to another.

    Attributes:
        old: the absolute directory that paths are below now; "/" has every absolute path below it.
        new: the absolute directory that they shall be below.

    Raises:
        ValueError: one of them is not absolute.
    """

    old: str = attrs.field(converter=_directory)
    new: str = attrs.field(converter=_directory)

    def spec(self, spec: Spec) -> Spec:
        """A spec with the paths of its hosts rewritten; the same one when both roots are."""
        if self.old == self.new:
            return spec
        return with_edits(spec, self.edits)

    def edits(self, edits: ContainerEdits) -> ContainerEdits:
        """Edits with the paths of their hosts rewritten."""
        return attrs.evolve(
            edits,
            device_nodes=tuple(map(self._node, edits.device_nodes)),
            mounts=tuple(map(self._mount, edits.mounts)),
            hooks=tuple(map(self._hook, edits.hooks)),
        )

    def path(self, path: str) -> str:
        """A path below the new root; one that is not below the old one is returned as it is."""
        if not path.startswith("/"):
            return path
        plain = _directory(path)
        if plain != self.old and not plain.startswith(f"{self.old.rstrip('/')}/"):
            return path
        return _directory(f"{self.new}/{plain.removeprefix(self.old)}")

    def _node(self, node: DeviceNode) -> DeviceNode:
        """Without a path on the host a node has the same one there, which is not so any more."""
        source = self.path(node.source)
        return node if source == node.source else attrs.evolve(node, host_path=source)

    def _mount(self, mount: Mount) -> Mount:
        return attrs.evolve(mount, host_path=self.path(mount.host_path))

    def _hook(self, hook: Hook) -> Hook:
        path, args = hook.path, hook.args
        if hook.hook_name not in _PROGRAM_IN_CONTAINER:
            path = self.path(path)
        if hook.hook_name not in _ARGUMENTS_IN_CONTAINER:
            args = tuple(map(self._argument, args))
        return attrs.evolve(hook, path=path, args=args)

    def _argument(self, argument: str) -> str:
        """Also both halves of `target::link`, as create-symlinks takes it."""
        target, separator, link = argument.partition(_LINK)
        return f"{self.path(target)}{separator}{self.path(link)}"


def with_edits(spec: Spec, change: Callable[[ContainerEdits], ContainerEdits]) -> Spec:
    """A spec with all of its edits changed: the common ones, and those of each device."""
    devices = tuple(attrs.evolve(each, container_edits=change(each.container_edits)) for each in spec.devices)
    return attrs.evolve(spec, devices=devices, container_edits=change(spec.container_edits))


def rerooted(spec: Spec, old: str, new: str) -> Spec:
    """A spec with the paths of its hosts rewritten from one root to another.

    Raises:
        ValueError: a root is not absolute.
    """
    return Rerooting(old, new).spec(spec)
