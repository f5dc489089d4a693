"""The command line: global flags, a subcommand, its flags, its arguments, read as Go's `flag` package reads them.

Measured on runsc 20240729: one or two dashes, `=` or a blank; an unknown global flag ends with 2, an unknown subcommand
or flag of one, or wrong arguments, with 128 and the usage on stderr, and leaves the log empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from .settings import Flavour

_BOOL, _TEXT = True, False

GLOBAL: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "alsologtostderr": _BOOL,
        "debug": _BOOL,
        "debug-log": _TEXT,
        "debug-log-format": _TEXT,
        "directfs": _BOOL,
        "file-access": _TEXT,
        "host-uds": _TEXT,
        "ignore-cgroups": _BOOL,
        "log": _TEXT,
        "log-format": _TEXT,
        "net-disconnect-ok": _BOOL,
        "network": _TEXT,
        "nvproxy": _BOOL,
        "nvproxy-docker": _BOOL,
        "nvproxy-driver-version": _TEXT,
        "oci-seccomp": _BOOL,
        "overlay2": _TEXT,
        "platform": _TEXT,
        "root": _TEXT,
        "rootless": _BOOL,
        "strace": _BOOL,
        "systemd-cgroup": _BOOL,
        "version": _BOOL,
    }
)
HEAD_GLOBAL: Final[Mapping[str, bool]] = MappingProxyType(
    {
        "gofer-network-namespace": _TEXT,
        "nvproxy-allow-unsupported-driver": _BOOL,
        "nvproxy-allowed-driver-capabilities": _TEXT,
        "restore-spec-validation": _TEXT,
        "shared-root": _TEXT,
    }
)


@attrs.frozen(kw_only=True)
class Verb:
    """One subcommand.

    Attributes:
        usage: what it says when it was called wrongly.
        flags: its flags.
        arguments: how many arguments it takes, at least and at most.
    """

    usage: str
    flags: Mapping[str, bool] = attrs.field(factory=dict)
    arguments: tuple[int, int] = (1, 1)


_MANY: Final = 1 << 20
_BUNDLE: Final = {"bundle": _TEXT, "console-socket": _TEXT, "pid-file": _TEXT, "user-log": _TEXT}
VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {
        "checkpoint": Verb(
            usage="checkpoint [flags] <container id> - save current state of container.\n",
            flags={
                "compression": _TEXT,
                "direct": _BOOL,
                "exclude-committed-zero-pages": _BOOL,
                "image-path": _TEXT,
                "leave-running": _BOOL,
                "work-path": _TEXT,
            },
        ),
        "create": Verb(usage="create [flags] <container id> - create a secure container\n", flags=_BUNDLE),
        "delete": Verb(usage="delete [flags] <container ids>", flags={"force": _BOOL}, arguments=(1, _MANY)),
        "events": Verb(usage="events [flags] <container id>\n", flags={"stats": _BOOL, "interval": _TEXT}),
        "exec": Verb(
            usage="exec [command options] <container-id> <command> [command options]\n",
            flags={
                "additional-gids": _TEXT,
                "cap": _TEXT,
                "cwd": _TEXT,
                "detach": _BOOL,
                "env": _TEXT,
                "exec-fd": _TEXT,
                "internal-pid-file": _TEXT,
                "pid-file": _TEXT,
                "user": _TEXT,
            },
            arguments=(0, _MANY),
        ),
        "help": Verb(usage="help [<subcommand>]\n", arguments=(0, 1)),
        "kill": Verb(
            usage="kill <container id> [signal]\n", flags={"all": _BOOL, "pid": _TEXT, "pgid": _TEXT}, arguments=(1, 2)
        ),
        "list": Verb(
            usage="list [flags]\n", flags={"format": _TEXT, "quiet": _BOOL, "sandbox": _BOOL}, arguments=(0, 0)
        ),
        "nvproxy": Verb(usage="nvproxy list-supported-drivers\n"),
        "pause": Verb(usage="pause <container id> - pause process in instance of container.\n"),
        "ps": Verb(usage="ps <container id> - lists processes running inside container\n", flags={"format": _TEXT}),
        "restore": Verb(
            usage="restore [flags] <container id> - restore saved state of container.\n",
            flags={**_BUNDLE, "detach": _BOOL, "direct": _BOOL, "image-path": _TEXT, "no-subreaper": _BOOL},
        ),
        "resume": Verb(usage="resume <container id> - Resume unpauses a paused container.\n"),
        "run": Verb(
            usage="run [flags] <container id> - create and run a secure container.\n",
            flags={**_BUNDLE, "detach": _BOOL},
        ),
        "start": Verb(usage="start <container id> - start a secure container.\n"),
        "state": Verb(usage="state [flags] <container id> - get the state of a container"),
        "wait": Verb(usage="wait [flags] <container id>", flags={"checkpoint": _TEXT, "pid": _TEXT, "rootpid": _TEXT}),
    }
)
_HEAD_FLAGS: Final[Mapping[str, Mapping[str, bool]]] = MappingProxyType(
    {
        "restore": {"background": _BOOL},
        "wait": {"checkpoint": _BOOL, "restore": _BOOL},
        "checkpoint": {"cuda-checkpoint-path": _TEXT, "cuda-checkpoint-sequential": _BOOL},
    }
)


class UsageError(Exception):
    """Raised when a command line makes no sense.

    Args:
        text: what stands on stderr.
        code: the exit code.
        logged: what stands in the log, which mostly is nothing.
    """

    def __init__(self, text: str, code: int, *, logged: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.logged = logged


@attrs.frozen(kw_only=True)
class Words:
    """A command line, read.

    Attributes:
        flags: global flags.
        verb: the subcommand.
        options: its flags.
        arguments: what follows.
    """

    flags: Mapping[str, str]
    verb: str
    options: Mapping[str, str] = attrs.field(factory=dict)
    arguments: tuple[str, ...] = ()

    def has(self, option: str) -> bool:
        """Whether a boolean option is on."""
        return self.options.get(option) == "true"


_USAGE: Final = "Usage: runsc <flags> <subcommand> <subcommand args>\n\nSubcommands:\n" + "".join(
    f"\t{verb}\n" for verb in VERBS
)


def read_globals(argv: Sequence[str], flavour: Flavour) -> tuple[dict[str, str], Sequence[str]]:
    """Read the global flags, and return what follows them.

    Raises:
        UsageError: with code 2.
    """
    known = GLOBAL if flavour is Flavour.R24 else {**GLOBAL, **HEAD_GLOBAL}
    try:
        return _flags(argv, known)
    except UsageError as error:
        raise UsageError(f"{error.text}\n{_USAGE}", 2) from None


def read_verb(flags: Mapping[str, str], rest: Sequence[str], flavour: Flavour) -> Words:
    """Read the subcommand, its flags and its arguments.

    Raises:
        UsageError: with code 128.
    """
    verb = VERBS.get(rest[0]) if rest else None
    if verb is None:
        raise UsageError(_USAGE, 128)
    try:
        options, arguments = _flags(rest[1:], flags_of(rest[0], flavour))
    except UsageError as error:
        raise UsageError(f"{error.text}\n{verb.usage}", 128) from None
    least, most = verb.arguments
    if not least <= len(arguments) <= most:
        raise UsageError(verb.usage, 128)
    compression = options.get("compression", "none")
    if compression not in {"none", "flate-best-speed"}:
        text = f'invalid value "{compression}" for flag -compression: invalid checkpoint compression type'
        raise UsageError(f'{text} "{compression}"\n{verb.usage}', 128)
    return Words(flags=flags, verb=rest[0], options=options, arguments=tuple(arguments))


def flags_of(verb: str, flavour: Flavour) -> Mapping[str, bool]:
    """The flags of a subcommand."""
    flags = VERBS[verb].flags
    return flags if flavour is Flavour.R24 else {**flags, **_HEAD_FLAGS.get(verb, {})}


def help_on(verb: str, flavour: Flavour) -> str:
    """What `help` says of a subcommand, without the words that explain each flag.

    Raises:
        UsageError: there is none such.
    """
    if verb not in VERBS:
        raise UsageError(f"Subcommand {verb} not understood\n", 128)
    kinds = sorted(flags_of(verb, flavour).items())
    return VERBS[verb].usage + "".join(f"  -{name}{'' if is_bool else ' value'}\n    \t…\n" for name, is_bool in kinds)


def _flags(words: Sequence[str], known: Mapping[str, bool]) -> tuple[dict[str, str], Sequence[str]]:
    """Read flags up to the first word that is none."""
    found: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
        if name not in known:
            raise UsageError(f"flag provided but not defined: -{name}", 128)
        if not equals and known[name] is _BOOL:
            value = "true"
        elif not equals:
            if at == len(words):
                raise UsageError(f"flag needs an argument: -{name}", 128)
            value = words[at]
            at += 1
        found[name] = value
    return found, words[at:]
