"""Spec files to read by two libraries: right, nearly right, and samples spoilt; as JSON, as YAML and in between.

A tree of plain values is drawn first and written in one of several styles then. A `Raw` in it is a scalar without
quotes whatever the style: there the two libraries could differ without anybody seeing it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from tests.needs import ROOT

SAMPLES: Final = Path(ROOT).parent / "shared" / "data" / "cdi"
"""Files as they are found on hosts, beside the checkout."""


@attrs.frozen
class Raw:
    """A scalar without quotes."""

    text: str


@attrs.frozen
class Pairs:
    """A mapping in which a key can stand twice."""

    pairs: tuple[tuple[str, Any], ...]


TOKENS: Final = tuple(
    re.findall(
        r"\S+",
        """
        0 1 7 195 007 08 0x10 0X1F 0b11 0b2 0o17 0o8 1_000 1__0 0_7 _1 +1 -1 -0 1:0 0:0 1:30:00 yes Yes on ON y no off n
        true True tRue false ~ ~x null Null NULL .inf -.inf .NaN 1e3 1e2 1.50 1.0 195.0 1.5 .5 -.5 1. 1.e3 .5_0 5_.5 1e6
        1e20 1e21 1e39 1e400 0.1e-5 12345678.9 4294967295 4294967296 -4294967296 9223372036854775807
        9223372036854775808 18446744073709551616 123456789012345678901234567890 2001-01-01 2001-01-01T00:00:00Z 0.5
        0.5.0 = << !!str !!int -0x10 +0x10 0x 0x_ 1_ 0777 0o777 0o666 0666 438 438.0 1e-7 a b c p u rw none /dev/null
        a=b
        """,
    )
)
"""Scalars without quotes that readers take for this or that."""


ODD: Final[tuple[Any, ...]] = (
    None, "", [], {}, True, 0, 5, -1, 1 << 32, 1.0, 1.5, "x", ["x"], {"x": "y"}, [None], "\u00e9", "a\nb", "\U0001f600",
)  # fmt: skip
"""What may stand in any place by mistake."""
WRONG: Final[dict[str, tuple[Any, ...]]] = {
    "cdiVersion": ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "v0.5.0", "0.6.0", "0.7.0", "0.9.0", "1.2.0", "0.5", "vv1.1.0"),
    "kind": ("3com.com/xx", "vv.com", "/", "vv.com/", "/gpu", "vv.com/b/c", "v.com./gg", "\u00e9.com/gg", "v..com/gg"),
    "name": (".a", "a:", "a b", "a=b", "a/b", "0", "a::b"),
    "type": ("f", "cc", "tmpfs", "u"),
    "permissions": ("rx", "NONE", "none", "mmm", "rw none"),
    "hookName": ("prestop", "CreateContainer", "startContainer"),
    "closID": ("/", ".", "..", "a/b", "a\nb", "a" * 4096, "a" * 4095),
    "timeout": (0, -5),
    "env": (["A"], ["=b"], ["A=b", "A=c"], ["A B = c"], [""]),
    "major": (-1, 1 << 63, (1 << 63) - 1),
    "uid": (0, (1 << 32) - 1),
}
"""What may stand in the place of a key, and is mostly refused there."""


def _words(*words: str) -> st.SearchStrategy[str]:
    return st.sampled_from(words)


def _record(required: dict[str, st.SearchStrategy[Any]], optional: dict[str, st.SearchStrategy[Any]]) -> Any:
    return st.fixed_dictionaries(required, optional=optional)


def _listed(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(strategy, min_size=1, max_size=2)


_PATHS: Final = _words("/dev/null", "/dev/x", "dev/x", "/a b", "/\u00e9", "/a/../b", "/", "/x\ty", "/\U0001f600")
_ENV: Final = st.lists(_words("A=b", "A=", "A=b=c", "LONG NAME = x", "B=\n", "Z=\u00e9"), min_size=1, max_size=3)
_SMALL: Final = st.integers(0, 255)
_NODE: Final = _record(
    {"path": _PATHS},
    {
        "hostPath": _PATHS, "type": _words("b", "c", "u", "p"), "major": _SMALL, "minor": _SMALL, "fileMode": _SMALL,
        "permissions": _words("r", "rw", "rwm"), "uid": _SMALL, "gid": _SMALL,
    },
)  # fmt: skip
_HOOK: Final = _record(
    {"hookName": _words("prestart", "createRuntime", "poststop", "createContainer"), "path": _PATHS},
    {"args": _listed(_words("a", "b c")), "env": _ENV, "timeout": _SMALL},
)
_MOUNT: Final = _record(
    {"hostPath": _PATHS, "containerPath": _PATHS},
    {"options": _listed(_words("ro", "bind", "rbind")), "type": _words("bind", "tmpfs")},
)
_RDT: Final = _record(
    {},
    {
        "closID": _words("a", "/"), "l3CacheSchema": _words("L3:0=f"), "memBwSchema": _words("MB:0=1"),
        "schemata": _listed(_words("L2:0=1")), "enableMonitoring": st.booleans(),
    },
)  # fmt: skip
_NETWORK: Final = st.sampled_from(
    [[{"hostInterfaceName": "e0", "name": "n0"}], [{"hostInterfaceName": f"e{i}", "name": f"n{i}"} for i in (1, 2)]]
)
_EDITS: Final = _record(
    {},
    {
        "env": _ENV, "deviceNodes": _listed(_NODE), "hooks": _listed(_HOOK), "mounts": _listed(_MOUNT),
        "intelRdt": _RDT, "netDevices": _NETWORK, "additionalGids": st.lists(_SMALL, max_size=2),
    },
)  # fmt: skip
_ANNOTATIONS: Final = st.dictionaries(
    _words("k", "a.b/c", "on", "bad key!", "1"), _words("v", "", "5", "\u2028"), max_size=2
)


@st.composite
def specs(draw: st.DrawFn) -> Any:
    """A spec that is right, as a tree."""
    first = {"name": draw(_words("gpu0", "0:0", "GPU-00000000")), "containerEdits": {"env": draw(_ENV), **draw(_EDITS)}}
    second = {"name": "all", "containerEdits": {"env": ["B=1"], **draw(_EDITS)}, "annotations": draw(_ANNOTATIONS)}
    tree: dict[str, Any] = {
        "cdiVersion": draw(_words("1.1.0", "1.1.0", "v1.1.0", "1.0.0")),
        "kind": draw(_words("vv.com/gpu", "nvidia.com/gpu", "a_b-c.d/x.y-z_1", "A.COM/GPU")),
        "devices": [first, second][: draw(st.integers(1, 2))],
    }
    if draw(st.booleans()):
        tree |= {"containerEdits": draw(_EDITS), "annotations": draw(_ANNOTATIONS)}
    return tree


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """A spec as a file, right or nearly right."""
    tree = draw(specs())
    for _ in range(draw(st.integers(0, 2))):
        tree = draw(spoilt(tree))
    style = draw(st.sampled_from(sorted(STYLES)))
    return draw(surrounded(STYLES[style](tree)))


@st.composite
def spoilt(draw: st.DrawFn, tree: Any) -> Any:
    """The tree with one value or one key of one mapping otherwise."""
    places = [place for place in _mappings(tree) if place]
    if not places:
        return tree
    place = draw(st.sampled_from(places))
    key = draw(st.sampled_from(sorted(place)))
    pairs = list(place.items())
    match draw(st.integers(0, 9)):
        case 0:
            pairs = [(each.upper() if each == key else each, value) for each, value in pairs]
        case 1:
            pairs.append((f"{key}s", place[key]))
        case 2:
            pairs.append((key, place[key]))
        case 3:
            pairs = [(each, value) for each, value in pairs if each != key]
        case 4 | 5:
            raw = Raw(draw(st.sampled_from(TOKENS)))
            value = [raw] if isinstance(place[key], list) else raw
            pairs = [(each, value if each == key else old) for each, old in pairs]
        case _:
            wrong = draw(st.sampled_from(WRONG.get(key, ()) + ODD))
            pairs = [(each, wrong if each == key else old) for each, old in pairs]
    return _replaced(tree, place, Pairs(tuple(pairs)))


def _mappings(tree: Any) -> list[dict[str, Any]]:
    children = [value for _, value in _pairs(tree)] if isinstance(tree, dict | Pairs) else tree
    children = children if isinstance(children, list) else []
    own = [tree] if isinstance(tree, dict) else []
    return own + [found for child in children for found in _mappings(child)]


def _replaced(tree: Any, old: Any, new: Any) -> Any:
    if tree is old:
        return new
    if isinstance(tree, dict):
        return {key: _replaced(value, old, new) for key, value in tree.items()}
    if isinstance(tree, Pairs):
        return Pairs(tuple((key, _replaced(value, old, new)) for key, value in tree.pairs))
    if isinstance(tree, list):
        return [_replaced(value, old, new) for value in tree]
    return tree


@st.composite
def surrounded(draw: st.DrawFn, text: str) -> bytes:
    """What stands around and between in real files."""
    match draw(st.integers(0, 9)):
        case 0:
            return text.replace("\n", "\r\n").encode()
        case 1:
            return b"\xef\xbb\xbf" + text.encode()
        case 2:
            return f"---\n{text}\n...\n".encode()
        case 3:
            return f"# made by hand\n{text}\n---\nanother: one\n".encode()
        case _:
            return text.encode()


def spoilt_samples() -> st.SearchStrategy[bytes]:
    """A sample with a line, or a word of one, gone, doubled or replaced; none where the samples are not."""
    return _spoilt_samples() if good_samples() else st.nothing()


def good_samples() -> list[Path]:
    """The samples that are right."""
    return sorted(SAMPLES.glob("[012]*"))


def bad_samples() -> list[Path]:
    """Those with one fault each."""
    return sorted((SAMPLES / "invalid").glob("*.*"))


@st.composite
def _spoilt_samples(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(good_samples())).read_bytes()
    lines = data.decode().split("\n")
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.integers(0, 3)):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[at])
        case 2:
            lines[at] = lines[at][:-1] if lines[at] else " "
        case _:
            words = lines[at].split(" ")
            word = draw(st.integers(0, len(words) - 1))
            words[word] = draw(st.sampled_from(TOKENS))
            lines[at] = " ".join(words)
    return "\n".join(lines).encode()


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _scalar(value: Any) -> str:
    return value.text if isinstance(value, Raw) else json.dumps(value, ensure_ascii=False)


def _pairs(value: Any) -> tuple[tuple[str, Any], ...]:
    return value.pairs if isinstance(value, Pairs) else tuple(value.items())


def as_flow(value: Any, separator: str = ", ") -> str:
    """JSON, but for raw scalars."""
    if isinstance(value, dict | Pairs):
        return "{" + separator.join(f"{_quoted(key)}: {as_flow(item, separator)}" for key, item in _pairs(value)) + "}"
    if isinstance(value, list):
        return "[" + separator.join(as_flow(item, separator) for item in value) + "]"
    return _scalar(value)


def as_loose_json(value: Any) -> str:
    """JSON as people write it: tabs, comments, trailing commas."""
    if isinstance(value, dict | Pairs) and _pairs(value):
        inner = "".join(f"\n\t{_quoted(key)}: {as_loose_json(item)}," for key, item in _pairs(value))
        return "{" + inner + "\n}"
    if isinstance(value, list) and value:
        return "[ # list" + "".join(f"\n\t{as_loose_json(item)}," for item in value) + "\n]"
    return as_flow(value)


def as_block(value: Any, indent: str = "") -> str:
    """YAML in block style; keys are plain where that is the same."""
    if isinstance(value, dict | Pairs) and _pairs(value):
        return "".join(
            f"\n{indent}{key if key.isidentifier() else _quoted(key)}:{_block_value(item, indent)}"
            for key, item in _pairs(value)
        )
    if isinstance(value, list) and value:
        return "".join(f"\n{indent}-{_block_value(item, indent)}" for item in value)
    return as_flow(value)


def _block_value(value: Any, indent: str) -> str:
    inner = as_block(value, f"{indent}  ")
    return inner if inner.startswith("\n") else f" {inner}"


STYLES: Final = {
    "flow": as_flow,
    "compact": lambda tree: as_flow(tree, ","),
    "loose": as_loose_json,
    "block": as_block,
}
