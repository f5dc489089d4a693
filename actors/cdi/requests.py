"""Request annotations: how a client of a container engine asks for devices, `cdi.k8s.io/<plugin>_<id>: <names>`.

They share nothing but the word with the annotations inside a spec (`actors.cdi.annotations`). SPEC.md does not name
them; this is the convention of Kubernetes' device plugins and of the Go library.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .names import parse_name
from .problems import CdiError, CdiProblem, CdiReason, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REQUEST_PREFIX: Final = "cdi.k8s.io/"
_NAME_CHARACTERS_MAX: Final = 63
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")


def request_key(plugin: str, device_id: str) -> str:
    """The key of a request; a slash in the id becomes an underscore.

    Raises:
        CdiError: BadRequest.
    """
    name = f"{plugin}_{device_id.replace('/', '_')}"
    if not plugin or not device_id:
        raise _bad("a request needs a plugin and an id that are not empty", name)
    if len(name) > _NAME_CHARACTERS_MAX:
        raise _bad(f"{quoted(name)} has {len(name)} characters; {_NAME_CHARACTERS_MAX} are the most", name)
    if not _NAME.fullmatch(name):
        rule = "must begin and end with a letter or digit, and hold letters, digits, _ . and - between"
        raise _bad(f"{quoted(name)} {rule}", name)
    return REQUEST_PREFIX + name


def request_value(names: Iterable[str]) -> str:
    """The value of a request.

    Raises:
        CdiError: BadName.
    """
    return ",".join(str(parse_name(name)) for name in names)


def with_request(annotations: Mapping[str, str], plugin: str, device_id: str, names: Iterable[str]) -> dict[str, str]:
    """The annotations with one request more.

    Raises:
        CdiError: BadRequest BadName RequestTaken.
    """
    key, value = request_key(plugin, device_id), request_value(names)
    if key in annotations:
        message = f"the annotation {quoted(key)} is there already"
        raise CdiError(CdiProblem(reason=CdiReason.REQUEST_TAKEN, message=message, path=key, value=annotations[key]))
    return {**annotations, key: value}


def requested_names(annotations: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys of all requests, sorted, and the names that they ask for, in the order of the keys, repeats kept.

    What follows the prefix in a key is not looked at: engines take any.

    Raises:
        CdiError: BadName, one for each value's first bad name. Nothing is asked for then.
    """
    keys = tuple(sorted(key for key in annotations if key.startswith(REQUEST_PREFIX)))
    names: list[str] = []
    problems: list[CdiProblem] = []
    for key in keys:
        try:
            names.extend(str(parse_name(name)) for name in annotations[key].split(","))
        except CdiError as error:
            first = error.problems[0]
            problems.append(CdiProblem(reason=first.reason, message=first.message, path=key, value=first.value))
    if problems:
        raise CdiError(*problems)
    return keys, tuple(names)


def _bad(message: str, value: str) -> CdiError:
    return CdiError(CdiProblem(reason=CdiReason.BAD_REQUEST, message=message, value=value))
