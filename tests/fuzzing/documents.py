"""Fuzz targets for what people write: assignments and other documents, given bundles, files of settings."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from actors.admission import decode
from actors.assignment import Resources, WorkerAssignment
from actors.bundle.capabilities import MKNOD, SETS, Claims
from actors.bundle.config import Membership
from actors.bundle.given import given_config, parse_config
from actors.codec import dumps, loads, structure
from actors.peek import peek_uid
from actors.strict_json import canonical, parse_object
from actors.validation import DocumentFile, validate_documents
from supervisor.cli.run import run
from supervisor.cli.worker_options import NAMES, settings_in
from tests.actors.test_admission_fuzz import FIELDS, VALID, WORDS
from tests.actors.test_bundle_given import FULL, SMALL
from tests.fuzzing.promises import Target, hold, refused

if TYPE_CHECKING:
    from collections.abc import Iterable

_BASE: Final = Path("/base")
_BUNDLE: Final = Path("/given/web")
_SUB: Final = Membership(name="web", sandbox_id="c0")
_YAML: Final = ("&a ", "*a", "<<: *a", "!!binary ", "? ", "|\n", ">-\n", "---\n", "...\n", "\\ud83d", "\\/", "# ")
_POOL: Final = {
    "apiVersion": "greenroom.dev/v1alpha1",
    "kind": "WorkerPool",
    "metadata": {"name": "gpus"},
    "spec": {"sandboxClass": "gvisor", "template": {"resources": {"limits": {"nvidia.com/gpu": 2}}}},
}


# ---------------------------------------------------------------------------------------------------------- assignment


def check_assignment(data: bytes) -> None:
    """A document is an assignment that its codec gives back, or is refused; all three readers of it agree."""
    assignment = refused(lambda: decode(data, base=_BASE))
    (report,) = validate_documents([DocumentFile(name="x.yaml", data=data, base=_BASE)])
    peek_uid(data)
    if assignment is None:
        return
    hold(not report.problems, "what admission takes validation takes")
    hold(structure(loads(dumps(assignment)), WorkerAssignment) == assignment, "what is written is read again as it was")
    hold(peek_uid(data) in {assignment.uid, None}, "a look at a document sees the uid that admission reads")
    hold(all(each.path.is_absolute() for each in report.given_paths), "every path that is looked for is absolute")


def _assignment_seeds() -> Iterable[tuple[str, bytes]]:
    for name, document in (("valid", VALID), ("pool", _POOL)):
        yield f"{name}.json", json.dumps(document).encode()
        yield f"{name}.yaml", _as_yaml(document).encode()
    yield "words", "\n".join(WORDS).encode("utf-8", "replace")


def _as_yaml(value: Any, indent: int = 0) -> str:
    pad = " " * indent
    if isinstance(value, dict) and value:
        return "".join(f"\n{pad}{key}: {_as_yaml(each, indent + 2)}" for key, each in value.items())
    if isinstance(value, list) and value:
        return "".join(f"\n{pad}- {_as_yaml(each, indent + 2).lstrip()}" for each in value)
    return json.dumps(value)


# -------------------------------------------------------------------------------------------------------------- bundle


def check_bundle(data: bytes) -> None:
    """A given config.json is refused, or said anew for any claims: it is not changed, and nothing of ours is lost."""
    given = refused(lambda: parse_config(data, subject="/given/web/config.json"))
    if given is None:
        return
    before = copy.deepcopy(given)
    for claims in Claims:
        config = given_config(given, _BUNDLE, membership=_SUB, limits=Resources(), claims=claims)
        hold(given == before, "the given one is not changed")
        hold(parse_object(canonical(config)) == config, "what is written is read again as it was")
        hold(config["root"]["path"].startswith("/"), "the root is absolute")
        hold(config["process"]["terminal"] is False, "there is no terminal")
        hold(_SUB.annotations().items() <= config["annotations"].items(), "the annotations are ours")
        hold("cgroupsPath" not in config["linux"], "cgroups are not the bundle's to choose")
        joined = [each for each in config["linux"]["namespaces"] if each["type"] != "network" and "path" in each]
        hold(not joined, "of namespaces only the network may be an existing one")
        sources = [each.get("source") for each in config["mounts"] if each.get("type") == "bind"]
        hold(all(each.startswith("/") for each in sources if each), "bind sources are absolute")
        if claims is Claims.DEVICES:
            sets = config["process"].get("capabilities") or {}
            hold(
                not any(MKNOD in (sets.get(name) or []) for name in SETS), "CAP_MKNOD is gone where a device is claimed"
            )
            hold(config["linux"]["seccomp"]["syscalls"][0]["names"] == ["mknod"], "no profile comes before ours")


def _bundle_seeds() -> Iterable[tuple[str, bytes]]:
    yield "small.json", json.dumps(SMALL).encode()
    yield "full.json", json.dumps(FULL).encode()


_BUNDLE_WORDS: Final = (
    "ociVersion", "process", "root", "mounts", "annotations", "linux", "args", "env", "user", "capabilities", "cwd",
    "terminal", "consoleSize", "uid", "gid", "additionalGids", "path", "readonly", "destination", "type", "source",
    "options", "cgroupsPath", "namespaces", "resources", "devices", "seccomp", "memory", "cpu", "fileMode",
    "defaultAction", "syscalls", "names", "action", "bounding", "effective", "permitted", "inheritable", "ambient",
    "CAP_MKNOD", "cap_mknod", "SCMP_ACT_ALLOW", "SCMP_ACT_KILL", "mknod", "mknodat", "network", "bind", "rbind",
    "1.0.2", "null", "NaN", "1e999", "-0", "Process", "ARGS", "\\u017f",
)  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ settings


def check_settings(data: bytes) -> None:
    """A file of settings is refused as a wrong use is, or is what `run` could have been told by flags."""
    try:
        settings = settings_in(data, Path("/etc/greenroom.toml"))
        hold(settings.keys() <= NAMES, "only settings of a worker are taken")
        hold(all(isinstance(each, str | tuple) for each in settings.values()), "each is read as a flag is")
        run.make_context("run", [], default_map=settings, resilient_parsing=False)
    except click.UsageError as error:
        hold(error.message.isprintable() or "\n" in error.message, "a refusal can be printed")


def _settings_seeds() -> Iterable[tuple[str, bytes]]:
    yield "all.toml", b"".join(f'{name} = "x"\n'.encode() for name in sorted(NAMES))
    yield (
        "some.toml",
        (
            b'state-dir = "/var/lib/greenroom"\nmax-actors = 10\ndrain_timeout = 1.5\non-drain = "suspend"\n'
            b'snapshot-store = "s3://bucket/place"\nnetwork = "none"\n'
        ),
    )
    yield "odd.toml", b'[a]\nb = 1\n"c.d" = [1, {e = 2}]\nf = 1979-05-27T07:32:00Z\ng = """x\n"""\nh = 0x1F\n'


ASSIGNMENT: Final = Target(
    name="assignment", check=check_assignment, seeds=_assignment_seeds, words=(*FIELDS, *WORDS[:-1], *_YAML)
)
BUNDLE: Final = Target(name="bundle", check=check_bundle, seeds=_bundle_seeds, words=_BUNDLE_WORDS)
SETTINGS: Final = Target(
    name="settings",
    check=check_settings,
    seeds=_settings_seeds,
    words=(*sorted(NAMES), '"""', "'''", " = ", "[", "[[", "]]", "inf", "nan", "0x", "1e9", "1979-05-27", "s3://b/n"),
    input_bytes_max=2000,
)
