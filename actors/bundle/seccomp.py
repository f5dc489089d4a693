"""`linux.seccomp`: in an actor that claims a device, no application container makes a device node.

A node with the numbers of a neighbour's GPU would be the way to it. Measured on runsc 20240729: it makes device nodes
without looking at CAP_MKNOD, in a user namespace too, but applies this filter when it is told to (`FLAG`): to the
container's own process and all its children, and after a restore again. What `runsc exec` starts has no filter there;
that is confined by a program of our own (`actors.confine_elf`). Of several rules for a call the first that fits counts.

Source: OCI runtime specification, config-linux.md, "Seccomp"; mknod(2), inode(7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.strict_json import member, type_name

from .capabilities import Claims

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.strict_json import JsonObject

FLAG: Final = "--oci-seccomp=true"
"""runsc's global flag, without which it passes over every filter."""

MODE_ARGUMENT: Final = (("mknod", 1), ("mknodat", 2))
"""The calls that make a node, and at which index their mode is; a machine without the first passes over its name."""
S_IFMT: Final = 0o170000
DEVICE_KINDS: Final = (0o020000, 0o060000)
"""S_IFCHR and S_IFBLK. Fifos, sockets and regular files are made as ever."""

_REFUSE: Final = "SCMP_ACT_ERRNO"
_STRONGER: Final = ("SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP")
"""Actions that are worse for the caller than an error, the worst first."""


def flags_for(claims: Claims) -> tuple[str, ...]:
    """Return the global flags that a sandbox needs for its filters."""
    return () if claims is Claims.NONE else (FLAG,)


def confined(linux: JsonObject, claims: Claims) -> JsonObject:
    """Return a container's `linux` with the filter that the claims ask for; the same one where they ask for none."""
    return linux if claims is Claims.NONE else {**linux, "seccomp": without_device_nodes(linux.get("seccomp"))}


def without_device_nodes(profile: JsonObject | None) -> JsonObject:
    """Return a profile that also refuses to make device nodes, and is nowhere weaker than the given one.

    The refusal comes first, so that no rule that allows these calls comes before it. It is as strong as the strongest
    word that the profile has for them: who was killed for such a call still is.
    """
    given: JsonObject = {"defaultAction": "SCMP_ACT_ALLOW"} if profile is None else profile
    said = {given.get("defaultAction"), *_actions_for_nodes(given)}
    action = next((each for each in _STRONGER if each in said), _REFUSE)
    refusals = [
        {
            "names": [name],
            "action": action,
            "args": [{"index": index, "value": S_IFMT, "valueTwo": kind, "op": "SCMP_CMP_MASKED_EQ"}],
        }
        for name, index in MODE_ARGUMENT
        for kind in DEVICE_KINDS
    ]
    return {**given, "syscalls": [*refusals, *(given.get("syscalls") or [])]}


def _actions_for_nodes(profile: JsonObject) -> Iterator[Any]:
    names = {name for name, _ in MODE_ARGUMENT}
    for rule in profile.get("syscalls") or []:
        if names & set(rule.get("names") or []):
            yield rule.get("action")


def faults_of(profile: object, path: str) -> Iterator[tuple[str, str]]:
    """Check what is read here of a given profile, where null is absent: JSON path and sentence of each fault."""
    if profile is None:
        return
    if not isinstance(profile, dict):
        yield path, f"must be an object, is {type_name(profile)}"
        return
    yield from _fault_of_text(profile, path, "defaultAction")
    rules = profile.get("syscalls")
    at = member(path, "syscalls")
    if not isinstance(rules, list | None):
        yield at, f"must be an array, is {type_name(rules)}"
        return
    for index, rule in enumerate(rules or []):
        here = member(at, index)
        if not isinstance(rule, dict):
            yield here, f"must be an object, is {type_name(rule)}"
            continue
        yield from _fault_of_text(rule, here, "action")
        names = rule.get("names")
        if names is not None and not (isinstance(names, list) and all(isinstance(each, str) for each in names)):
            yield member(here, "names"), "must be an array of strings"


def _fault_of_text(holder: JsonObject, path: str, key: str) -> Iterator[tuple[str, str]]:
    value = holder.get(key)
    if not isinstance(value, str | None):
        yield member(path, key), f"must be a string, is {type_name(value)}"
