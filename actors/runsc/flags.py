"""runsc's global flags: the same on every call of a sandbox, and recorded with it.

Measured on runsc 20240729: restoring with another `--overlay2` or `--network` fails at the last container; with another
`--platform` every restore succeeds and the sandbox then dies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from pathlib import Path

    from actors.strict_json import JsonObject


def _is_flag(_instance: object, _attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for flag in value:
        # A word that is no flag would be taken for the subcommand.
        if not flag.startswith("--"):
            message = f"an extra flag begins with two dashes: {flag!r}"
            raise ValueError(message)


def _is_annotation(_instance: object, _attribute: attrs.Attribute[Any], value: tuple[str, ...]) -> None:
    for annotation in value:
        if not annotation.partition("=")[1] or annotation.startswith("-"):
            message = f"an annotation is a name, an equals sign and a value: {annotation!r}"
            raise ValueError(message)


@attrs.frozen(kw_only=True)
class GlobalFlags:
    """The global flags of one sandbox.

    Attributes:
        platform: how gVisor intercepts system calls: systrap, kvm, ptrace.
        network: none, sandbox or host. `host` cannot be checkpointed.
        overlay2: where writes to a rootfs go; in the sandbox's memory, two containers can share a rootfs and nothing
            is left in it.
        net_disconnect_ok: save although a connection is open; it is reset at restore. Without it such a save fails.
        ignore_cgroups: leave cgroups alone; the pod has its own.
        extra: further flags as they are, each beginning with two dashes, such as `--nvproxy`.
        annotations: `NAME=VALUE`, what tells the sandbox as a flag would, but stands in its root container's bundle.
    """

    platform: str = "systrap"
    network: str = "none"
    overlay2: str = "root:memory"
    net_disconnect_ok: bool = True
    ignore_cgroups: bool = True
    extra: tuple[str, ...] = attrs.field(default=(), validator=_is_flag)
    annotations: tuple[str, ...] = attrs.field(default=(), validator=_is_annotation)

    def more(self, *, extra: tuple[str, ...] = (), annotations: tuple[str, ...] = ()) -> GlobalFlags:
        """Return these and more."""
        return attrs.evolve(self, extra=(*self.extra, *extra), annotations=(*self.annotations, *annotations))

    def as_argv(self, *, root: Path, log: Path) -> tuple[str, ...]:
        """Return the flags for a command line; `--root=` as one word, by which a sandbox's processes are found."""
        return (root_argument(root), f"--log={log}", *self._as_flags())

    def as_list(self) -> tuple[str, ...]:
        """Return what does not differ between commands, the annotations too: the form of the manifest."""
        return (*self._as_flags(), *self.annotations)

    def _as_flags(self) -> tuple[str, ...]:
        return (
            f"--platform={self.platform}",
            f"--network={self.network}",
            f"--overlay2={self.overlay2}",
            f"--net-disconnect-ok={_word(self.net_disconnect_ok)}",
            f"--ignore-cgroups={_word(self.ignore_cgroups)}",
            *self.extra,
        )

    def as_json(self) -> JsonObject:
        """Return the form of the activation's record."""
        return {
            "platform": self.platform,
            "network": self.network,
            "overlay2": self.overlay2,
            "netDisconnectOk": self.net_disconnect_ok,
            "ignoreCgroups": self.ignore_cgroups,
            "extra": list(self.extra),
            **({"annotations": list(self.annotations)} if self.annotations else {}),
        }

    @classmethod
    def from_json(cls, document: JsonObject) -> GlobalFlags:
        """Read the form of the activation's record.

        Raises:
            KeyError, TypeError, ValueError: it is not that form.
        """
        for key in ("platform", "network", "overlay2"):
            _need(document, key, str)
        for key in ("netDisconnectOk", "ignoreCgroups"):
            _need(document, key, bool)
        _need(document, "extra", list)
        annotations = {"annotations": [], **document}
        _need(annotations, "annotations", list)
        return cls(
            platform=document["platform"],
            network=document["network"],
            overlay2=document["overlay2"],
            net_disconnect_ok=document["netDisconnectOk"],
            ignore_cgroups=document["ignoreCgroups"],
            extra=tuple(str(flag) for flag in document["extra"]),
            annotations=tuple(str(each) for each in annotations["annotations"]),
        )


def root_argument(root: Path) -> str:
    """Return the word that runsc, the sandbox and every gofer of this root carry on their command line."""
    return f"--root={root}"


def _word(value: bool) -> str:  # noqa: FBT001 - the value itself is what is written
    return "true" if value else "false"


def _need(document: JsonObject, key: str, kind: type) -> None:
    if not isinstance(document[key], kind):
        message = f"{key} is no {kind.__name__}: {document[key]!r}"
        raise TypeError(message)
