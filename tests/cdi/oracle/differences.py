"""Where the library and the Go library differ, each with a name, an example that shows it, and what it explains.

docs/cdi.md has the same names. A difference that its example does not show any more fails its test, so that the list
cannot rot; a difference that nothing here explains fails the test of the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import attrs

from actors.cdi import CdiProblem, CdiReason, Reading, Spec
from actors.cdi.reading import SPEC_BYTES_MAX
from actors.cdi.scalars import as_text
from actors.document.values import Plain

Model = Any
OLD: Final = frozenset({"1.1.0"})
NEW: Final = frozenset({"1.1.2"})
BOTH: Final = OLD | NEW


def as_versions_see(spec: Spec) -> Spec:
    """What the Go library looks at for the version needed: to it all have the nodes and mounts of the last device."""
    last = spec.devices[-1].container_edits
    return attrs.evolve(
        spec,
        devices=tuple(
            attrs.evolve(
                each,
                container_edits=attrs.evolve(each.container_edits, device_nodes=last.device_nodes, mounts=last.mounts),
            )
            for each in spec.devices
        ),
    )


def _is_an_entry_of_nothing(problem: CdiProblem) -> bool:
    """An empty variable, of the container or of a hook."""
    return problem.reason in {CdiReason.BAD_ENV, CdiReason.BAD_HOOK} and "env[" in problem.path and not problem.value


def _needs_more_for_a_device(problem: CdiProblem) -> bool:
    needs = re.search(r"needs at least 0\.[45]\.0, at devices\[", problem.message)
    return problem.reason is CdiReason.VERSION_TOO_LOW and needs is not None


def _never(_: Any) -> bool:
    return False


def _same(model: Model) -> Model:
    return model


@attrs.frozen(kw_only=True)
class Difference:
    """One way in which they differ.

    Attributes:
        name: as docs/cdi.md has it.
        releases: of the Go library, in which it shows.
        example: a file that shows this one and no other.
        problem: whether it explains that we refuse a file for this.
        error: whether it explains that the Go library refuses a file with these words.
        evened: both models without what it makes differ.
        concerns: whether a file can show it at all.
    """

    name: str
    releases: frozenset[str]
    example: bytes
    problem: Callable[[CdiProblem], bool] = _never
    error: Callable[[str], bool] = _never
    evened: Callable[[Model], Model] = _same
    concerns: Callable[[bytes], bool] = attrs.field(default=lambda _: True)


def spec(edits: str = "env: [A=b]", *, name: str = "a", head: str = "", version: str = "1.1.0") -> bytes:
    """A small spec around what matters."""
    return f"""cdiVersion: {version}
kind: vv.com/gpu
{head}
devices:
- name: {name}
  containerEdits:
    {edits}
""".encode()


_FIELDS: Final = frozenset(
    re.findall(
        r"\S+",
        "cdiVersion kind annotations devices containerEdits name env deviceNodes netDevices hooks mounts intelRdt path "
        "additionalGids hostPath type major minor fileMode permissions uid gid hostInterfaceName containerPath options "
        "hookName args timeout closID l3CacheSchema memBwSchema schemata enableMonitoring",
    )
)
_FOLDED: Final = frozenset(map(str.lower, _FIELDS))


def _names_a_field_in_other_letters(error: str) -> bool:
    found = re.findall(r"field (\S+) not found in type", error)
    return bool(found) and all(name not in _FIELDS and name.lower() in _FOLDED for name in found)


def _resolved(model: Model) -> Model:
    """Every text as the old reader makes it from a plain scalar."""
    if isinstance(model, dict):
        return {_as_scalar(key): _resolved(value) for key, value in model.items()}
    if isinstance(model, list):
        return [_resolved(item) for item in model]
    return _as_scalar(model) if isinstance(model, str) else model


def _as_scalar(text: str) -> str:
    # Twice: -0.0 becomes -0, and that 0.
    return as_text(Plain(as_text(Plain(text))))


def _comes_of_a_scalar(problem: CdiProblem) -> bool:
    """We refuse what a plain scalar became (1e6 is "1e+06"), or a key that was none (null, two of one value)."""
    if problem.reason is CdiReason.BAD_DEVICE_NAME:
        return re.fullmatch(r"[-+]?[0-9.]+e[-+][0-9]+|[-+]Inf", problem.value) is not None
    is_key = problem.reason is CdiReason.WRONG_TYPE and "a key must be text" in problem.message
    return is_key or problem.reason is CdiReason.DUPLICATE_KEY


def _quotes_a_scalar(error: str) -> bool:
    """They refuse what we took for another text."""
    return any(_as_scalar(text) != text for text in re.findall(r'"([^"]+)"', error))


def _without_binary(model: Model) -> Model:
    """Annotations alone: that is where the example and the corpus have such a tag."""
    return {key: value for key, value in model.items() if key != "annotations"}


def _without_nulls(model: Model) -> Model:
    """A null in a list of texts or numbers is an empty text or 0 to us, and nothing to them."""
    if isinstance(model, dict):
        evened = {key: _without_nulls(value) for key, value in model.items()}
        return {key: value for key, value in evened.items() if value not in ([], {}) or key == "intelRdt"}
    if isinstance(model, list):
        return [item for item in map(_without_nulls, model) if isinstance(item, dict) or item]
    return model


def _says(*patterns: str) -> Callable[[str], bool]:
    return lambda error: any(re.search(pattern, error) for pattern in patterns)


def _holds(*words: bytes) -> Callable[[bytes], bool]:
    return lambda data: any(word in data for word in words)


def _is_no_whole_number(problem: CdiProblem) -> bool:
    plain = re.fullmatch(r"[-+]?[0-9_]*\.?[0-9_]*(e[-+]?[0-9]+)?|[-+]?\.(inf|nan)", problem.value, re.IGNORECASE)
    return problem.reason is CdiReason.WRONG_TYPE and "a whole number" in problem.message and plain is not None


def _is_quoted_boolean(problem: CdiProblem) -> bool:
    return problem.reason is CdiReason.WRONG_TYPE and "true or false without quotes" in problem.message


DIFFERENCES: Final = (
    Difference(
        name="keys in other letters",
        releases=NEW,
        example=spec("ENV: [A=b]"),
        error=_names_a_field_in_other_letters,
    ),
    Difference(
        name="a key in two spellings",
        releases=OLD,
        example=spec(name="a\n  NAME: b"),
        problem=lambda problem: problem.reason is CdiReason.DUPLICATE_KEY and "two spellings" in problem.message,
    ),
    Difference(
        name="plain scalars as text",
        releases=NEW,
        example=spec(head="annotations: {on: 007}"),
        problem=_comes_of_a_scalar,
        error=_quotes_a_scalar,
        evened=_resolved,
    ),
    Difference(
        name="fractions where a number is wanted",
        releases=NEW,
        example=spec("deviceNodes: [{path: /a, major: 1.5}]"),
        problem=_is_no_whole_number,
    ),
    Difference(
        name="quoted booleans",
        releases=NEW,
        example=spec("intelRdt: {enableMonitoring: 'yes'}"),
        problem=_is_quoted_boolean,
    ),
    Difference(
        name="null in a list of texts or numbers",
        releases=NEW,
        example=spec("env: [A=b, null]"),
        problem=_is_an_entry_of_nothing,
        evened=_without_nulls,
        concerns=lambda data: re.search(rb"null|~|Null|NULL|\[\s*,|-\s*\n", data) is not None,
    ),
    Difference(
        name="negative device numbers",
        releases=NEW,
        example=spec("deviceNodes: [{path: /a, major: -1}]"),
        error=_says(r"invalid \(negative\) device number"),
    ),
    Difference(
        name="minus zero where an unsigned number is wanted",
        releases=OLD,
        example=spec("additionalGids: [-0.0]"),
        error=_says(r"cannot unmarshal number -0 "),
    ),
    Difference(
        name="escapes of JSON",
        releases=BOTH,
        example=spec().replace(b"vv.com/gpu", b'"vv.com\\/gpu"'),
        error=_says("unknown escape character", "invalid Unicode character escape code"),
        concerns=_holds(b"\\/", b"\\ud", b"\\uD"),
    ),
    Difference(
        name="NUL in a text",
        releases=BOTH,
        example=spec(head='annotations: {k: "a\\0b"}'),
        problem=lambda problem: problem.reason is CdiReason.BAD_TEXT,
    ),
    Difference(
        name="binary tags",
        releases=BOTH,
        example=spec(head="annotations: {k: !!binary aGk=}"),
        problem=lambda problem: problem.reason in {CdiReason.BAD_DEVICE_NAME, CdiReason.BAD_ENV},
        error=_says(r"invalid (environment variable|name|class)"),
        evened=_without_binary,
        concerns=_holds(b"!!binary"),
    ),
    Difference(
        name="tags that do not fit",
        releases=BOTH,
        example=spec(head="annotations: {k: !!null x}"),
        error=_says(r"cannot decode !!", r"cannot unmarshal !!"),
        concerns=_holds(b"!!"),
    ),
    Difference(
        name="tags right before a comma",
        releases=BOTH,
        example=spec('intelRdt: {"closID": !!str,"l3CacheSchema": "L3"}'),
        # Before a blank the comma is taken for a part of the tag, and missed behind it.
        error=_says("did not find expected whitespace or line break", r"did not find expected ',' or '[}\]]'"),
        concerns=lambda data: re.search(rb"![\w!]*,", data) is not None,
    ),
    Difference(
        name="fields that 1.1.0 removed",
        releases=BOTH,
        example=spec("intelRdt: {enableCMT: true}", version="1.0.0"),
        error=_says(r'unknown field "enable(CMT|MBM)"', r"field enable(CMT|MBM) not found"),
    ),
    Difference(
        name="vendors and classes of one letter",
        releases=OLD,
        example=spec().replace(b"vv.com/gpu", b"v/g"),
        error=_says(r"slice bounds out of range"),
    ),
    Difference(
        name="no permissions",
        releases=OLD,
        example=spec("deviceNodes: [{path: /a, permissions: none}]"),
        error=_says(r'invalid permissions "none"'),
    ),
    Difference(
        name="versions needed by devices before the last",
        releases=BOTH,
        example=spec("mounts: [{hostPath: /a, containerPath: /b, type: bind}]", version="0.3.0")
        + b"- {name: z, containerEdits: {env: [A=b]}}\n",
        problem=_needs_more_for_a_device,
    ),
    Difference(
        name="size",
        releases=BOTH,
        example=spec() + b"#" * SPEC_BYTES_MAX,
        problem=lambda problem: problem.reason is CdiReason.DOCUMENT_TOO_LARGE,
    ),
)


@attrs.frozen
class Comparison:
    """What two libraries make of one file."""

    data: bytes
    reading: Reading
    ours: Model | None
    theirs: Model | None
    error: str

    @property
    def is_equal(self) -> bool:
        """Both refuse it, or both get the same."""
        return self.ours == self.theirs

    def __str__(self) -> str:
        ours = [str(problem) for problem in self.reading.problems] or self.ours
        return f"{self.data!r}\nours:   {ours}\ntheirs: {self.error or self.theirs}"

    def is_explained_by(self, differences: tuple[Difference, ...]) -> bool:
        """Whether these differences are all that there is between the two."""
        concerned = [difference for difference in differences if difference.concerns(self.data)]
        if self.ours is None:
            return all(any(each.problem(problem) for each in concerned) for problem in self.reading.problems)
        if self.theirs is None:
            return any(each.error(self.error) for each in concerned)
        ours, theirs = self.ours, self.theirs
        for each in concerned:
            ours, theirs = each.evened(ours), each.evened(theirs)
        return bool(ours == theirs)
