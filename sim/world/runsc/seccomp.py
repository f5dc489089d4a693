"""A container's seccomp filter, as far as it speaks of making device nodes. Measured on runsc 20240729.

It counts only under `--oci-seccomp`; of several rules the first that fits counts; a name that is no system call of the
machine is passed over, and so are architectures and flags; an action that runsc does not know fails the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .refusals import SandboxError
from .shell import NotUnderstoodError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALLOW: Final = "SCMP_ACT_ALLOW"
_ACTIONS: Final = frozenset({_ALLOW, "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_TRACE", "SCMP_ACT_TRAP"})
_CALL: Final = "mknodat"
"""The one that C libraries use."""
_MODE_INDEX: Final = 2
MODES: Final = {"c": 0o020_666, "b": 0o060_666, "p": 0o010_666}
"""What mknod(1) asks for, by its word for the kind."""


def refused_kinds(spec: Mapping[str, Any], flags: Mapping[str, str]) -> frozenset[str]:
    """Return the kinds of nodes that a container's own process cannot make.

    Raises:
        SandboxError: the filter cannot be built.
    """
    profile = (spec.get("linux") or {}).get("seccomp")
    if flags.get("oci-seccomp") != "true" or profile is None:
        return frozenset()
    default = profile.get("defaultAction", "")
    if default not in _ACTIONS:
        raise SandboxError(f"building seccomp program: secomp default action: invalid action: {default}")
    rules = profile.get("syscalls") or []
    for rule in rules:
        if rule.get("action", "") not in _ACTIONS:
            raise SandboxError(
                f"building seccomp program: invalid seccomp rules: invalid action: {rule.get('action', '')}"
            )
    return frozenset(kind for kind, mode in MODES.items() if _action(rules, default, mode) != _ALLOW)


def _action(rules: list[Mapping[str, Any]], default: str, mode: int) -> str:
    for rule in rules:
        if _CALL in (rule.get("names") or ()) and all(_fits(each, mode) for each in rule.get("args") or ()):
            return str(rule["action"])
    return default


def _fits(condition: Mapping[str, Any], mode: int) -> bool:
    if condition["op"] != "SCMP_CMP_MASKED_EQ" or condition["index"] != _MODE_INDEX:
        raise NotUnderstoodError(f"the model knows no filter with {condition}")
    return bool(mode & condition["value"] == condition["valueTwo"])
