"""The house rules that no linter knows, each one a function from a file to what it does wrong. test_tidy.py runs them.

A rule names itself by its sentence and carries a planted breach, which it must find. Those breaches are why this one
file is not judged.
"""

import ast
import functools
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import attrs

MAX_LINES: Final = 400
LAYERS: Final = ("statemachine", "actors", "supervisor", "sim")
HOST: Final = "supervisor/host/"
VAGUE_NAMES: Final = frozenset({"helper", "helpers", "manager", "managers", "misc", "util", "utils"})
UNFINISHED: Final = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
# What does I/O when called on a pathlib.Path; the ports have other names on purpose.
PATH_IO: Final = frozenset(
    {"chmod", "exists", "expanduser", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "mkdir"}
    | {"read_bytes", "read_text", "readlink", "rglob", "rmdir", "symlink_to", "touch", "unlink", "write_bytes"}
    | {"write_text"}
)
# A directory whose name says nothing about the machine; below any other one, a path is that machine's.
COMMON_PARENTS: Final = frozenset(map(Path, ["/", "/home", "/opt", "/root", "/srv", "/tmp", "/usr/src", "/var/tmp"]))
REGISTRY_ADDRESS: Final = re.compile(
    r"https?://(?:[\w-]+\.)*(?:archive|artifact|cdn|deb|files|index|mirror|package|proxy|registry)[\w-]*\.[\w.]+\w"
    r"|https?://[^\s/]+/\S*\b(?:simple|debian)\b"
    r"|--(?:extra-)?index-url|--trusted-host",
)


@attrs.frozen
class File:
    """One committed file, by its path below the checkout."""

    path: str
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    def is_in(self, *folders: str) -> bool:
        return PurePosixPath(self.path).parts[0] in folders

    @property
    def is_layer_outside_host(self) -> bool:
        return self.is_python and self.is_in(*LAYERS) and not self.path.startswith(HOST)

    def nodes(self) -> Iterator[ast.AST]:
        return ast.walk(_tree(self.text)) if self.is_python else iter(())

    def calls(self) -> Iterator[tuple[ast.Call, str, bool]]:
        """Every call, the last part of the called name, and whether there was a part before it."""
        for node in self.nodes():
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute):
                    yield node, node.func.attr, True
                elif isinstance(node.func, ast.Name):
                    yield node, node.func.id, False


@functools.cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


@attrs.frozen
class Rule:
    """A rule, its sentence and a file that breaks it."""

    sentence: str
    breaches: Callable[[File], Iterator[str]]
    planted: File


RULES: Final[list[Rule]] = []


def rule(path: str, text: str) -> Callable[[Callable[[File], Iterator[str]]], Callable[[File], Iterator[str]]]:
    """Makes the decorated function a rule that is broken by a file with this path and text."""

    def register(breaches: Callable[[File], Iterator[str]]) -> Callable[[File], Iterator[str]]:
        RULES.append(Rule(breaches.__name__.replace("_", " "), breaches, File(path, text)))
        return breaches

    return register


def _lines(file: File, pattern: re.Pattern[str]) -> Iterator[str]:
    for number, line in enumerate(file.text.splitlines(), 1):
        if found := pattern.search(line):
            yield f"line {number}: {found[0]}"


@rule("actors/long.py", '"""Also what is generated."""\n' + "x = 1\n" * MAX_LINES)
def a_python_file_has_at_most_400_lines(file: File) -> Iterator[str]:
    count = len(file.text.splitlines())
    if file.is_python and count > MAX_LINES:
        yield f"{count} lines"


@rule("actors/bundle_utils.py", "")
def a_name_says_what_is_inside(file: File) -> Iterator[str]:
    for part in PurePosixPath(file.path).parts:
        if vague := VAGUE_NAMES.intersection(re.split(r"[._-]", part.lower())):
            yield f"{', '.join(vague)} in {part}"


@rule("README.md", "It works.\n\nTODO: say how\n")
def nothing_is_left_to_be_done(file: File) -> Iterator[str]:
    return _lines(file, UNFINISHED)


@rule("tests/test_x.py", "import os\nos.waitpid(-1, 0)\n")
def nobody_waits_for_any_child(file: File) -> Iterator[str]:
    for call, name, _ in file.calls():
        first = ast.unparse(call.args[0]) if call.args else ""
        if (name in {"waitpid", "wait4"} and first == "-1") or (name == "waitid" and first.endswith("P_ALL")):
            yield f"line {call.lineno}: {ast.unparse(call)}"


@rule("supervisor/host/processes.py", "run('ls | wc', shell=True)\n")
def no_shell_comes_between(file: File) -> Iterator[str]:
    for call, name, _ in file.calls():
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if keywords.get("shell") == "True" or name in {"create_subprocess_shell", "popen", "system"}:
            yield f"line {call.lineno}: {ast.unparse(call)}"


@rule("actors/runsc.py", "from subprocess import PIPE\n")
def what_may_daemonize_gets_no_pipe(file: File) -> Iterator[str]:
    if not file.is_layer_outside_host:
        return
    for node in file.nodes():
        names = {getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "name", "")}
        if "PIPE" in names:
            yield f"line {getattr(node, 'lineno', '?')}: PIPE"


@rule("actors/bundle.py", "text = config.read_text()\n")
def files_are_reached_through_the_port(file: File) -> Iterator[str]:
    # A fake_… of the mock node is a real program beside ours, and has no ports.
    if not file.is_layer_outside_host or file.path.startswith("sim/mock/fake_"):
        return
    for call, name, on_something in file.calls():
        whole = ast.unparse(call.func)
        opens = whole == "open" or (name == "resolve" and on_something and not call.args)
        touches = opens or (on_something and name in PATH_IO) or whole in {"Path.cwd", "Path.home"}
        # A command that a person runs may look at that person's files; the line says why.
        if touches and not re.search(r"\btidy: \w+ \w+", file.text.splitlines()[call.lineno - 1]):
            yield f"line {call.lineno}: {whole}()"


@rule("tests/test_x.py", "import pytest\npytest.skip('no runsc here')\n")
def a_test_skips_by_tests_needs_alone_which_ci_refuses(file: File) -> Iterator[str]:
    # What may lie beside a checkout and is not part of the project has skipif, with that reason.
    if not file.is_in("tests") or file.path == "tests/needs.py":
        return
    for call, name, _ in file.calls():
        reasons = [ast.unparse(each.value) for each in call.keywords if each.arg == "reason"]
        beside = any("beside this checkout" in reason for reason in reasons)
        if ast.unparse(call.func) in {"pytest.skip", "skip", "pytest.importorskip"} or (
            name == "skipif" and not beside
        ):
            yield f"line {call.lineno}: {ast.unparse(call.func)}()"


@rule("tests/test_x.py", "import time\ntime.sleep(0.1)\n")
def a_test_waits_for_something_not_for_a_while(file: File) -> Iterator[str]:
    # In a loop, a short sleep is how something is waited for. Virtual seconds, in the simulator's tests, cost nothing.
    if not file.is_in("tests"):
        return
    virtual = file.path.startswith("tests/sim/")
    loops = [node for node in file.nodes() if isinstance(node, ast.While | ast.For | ast.AsyncFor)]
    polling = {id(node) for loop in loops for node in ast.walk(loop)}
    for call, name, _ in file.calls():
        seconds = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        short = isinstance(seconds, int | float) and 0 < seconds < 5  # a longer one is a stand-in for `never`
        real = short and (not virtual or ast.unparse(call.func) == "time.sleep")
        if name == "sleep" and real and id(call) not in polling:
            yield f"line {call.lineno}: {ast.unparse(call)}"


@rule("tests/test_x.py", "def test_a_document_is_read():\n    check(b'{}')\n")
def a_test_shows_what_it_asserts(file: File) -> Iterator[str]:
    # In its own body: whoever reads it sees when it fails, also when functions that it calls assert things on the way.
    for node in file.nodes() if file.is_in("tests") else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            inside = list(ast.walk(node))
            calls = {ast.unparse(each.func) for each in inside if isinstance(each, ast.Call)}
            if not any(isinstance(each, ast.Assert) for each in inside) and "pytest.raises" not in calls:
                yield f"line {node.lineno}: {node.name}"


@rule("actors/ports/files.py", "class Files:\n    def read(self):\n        raise NotImplementedError\n")
def an_interface_is_a_protocol_or_abstract(file: File) -> Iterator[str]:
    for node in file.nodes():
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" in ast.unparse(node.exc):
            yield f"line {node.lineno}: {ast.unparse(node)}"


@rule("statemachine/table.py", "import anyio\n")
def the_machine_knows_the_standard_library_and_attrs(file: File) -> Iterator[str]:
    allowed = sys.stdlib_module_names | {"attrs", "statemachine"}
    for node in file.nodes() if file.is_in("statemachine") else ():
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        yield from (f"imports {name}" for name in modules if name.partition(".")[0] not in allowed)


@rule("actors/x.py", "import os  # noqa: TID251\n")
def an_exception_from_a_check_has_its_reason_beside_it(file: File) -> Iterator[str]:
    for number, line in enumerate(file.text.splitlines() if file.is_python else [], 1):
        # What a test does to the types on purpose needs no more words than the code of the error.
        checks = "noqa|pragma: " if file.is_in("tests") else "noqa|type: ignore|mypy: |pragma: "
        if found := re.search(rf"# (?:{checks})(.*)", line):
            reason = re.sub(r"^(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|\[[\w, -]+\])", "", found[1])
            if len(re.findall(r"[a-z]+", reason)) < 2:  # one word is no reason
                yield f"line {number}: {line.strip()}"


@rule("pyproject.toml", '[tool.ruff.lint]\nignore = [\n    "E501",\n]\n')
def an_ignored_lint_rule_has_its_reason_beside_it(file: File) -> Iterator[str]:
    if file.path != "pyproject.toml":
        return
    sections = re.findall(
        r"^\[tool\.ruff\.lint(?:\.per-file-ignores)?\]$(.*?)(?=^\[)", file.text + "\n[", re.DOTALL | re.MULTILINE
    )
    for line in "".join(sections).splitlines():
        if re.match(r'\s*(?:"[^"]+"|[\w-]+) = \[.*\]', line) and "select" not in line:
            yield f"a list in one line: {line}"
        if re.match(r'\s+"[A-Z]+\d*",', line) and not re.search(r"# .*\w+ \w+", line):
            yield line.strip()


@rule("docs/setup.md", "pip install --index-url https://mirror.example.org/simple greenroom\n")
def no_registry_is_named(file: File) -> Iterator[str]:
    return _lines(file, REGISTRY_ADDRESS)


@rule("docs/tour.md", "cd /home/somebody/greenroom\n")
def no_path_belongs_to_one_machine(file: File) -> Iterator[str]:
    yield from _lines(file, re.compile(r"/(?:home|Users)/[a-z]\w+/"))
    checkout = Path(__file__).resolve().parent.parent
    if checkout.parent not in COMMON_PARENTS:
        yield from _lines(file, re.compile(re.escape(f"{checkout.parent}/")))


@rule("docs/design.md", "See [the facts](../../facts/list.md).\n")
def no_path_leads_out_of_the_checkout(file: File) -> Iterator[str]:
    # Links and quoted paths. Not in Python: tests of what must not be followed are full of such paths.
    for found in () if file.is_python else re.finditer(r"(?:\]\(|`)((?:\.\./)+)[\w.-]+", file.text):
        if found[1].count("../") > len(PurePosixPath(file.path).parts) - 1:
            yield found[0]
