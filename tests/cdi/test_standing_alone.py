"""The library stands alone: what it imports, what it ships, and the example of its documentation."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import actors
import actors.cdi
from tests.cdi.making import device, spec

ROOT = Path(actors.__file__).parent
CHECKOUT = ROOT.parent
LIBRARY = ROOT / "cdi"
OWN = {"actors.cdi", "actors.document"}


def imports(module):
    """The modules that a module imports, absolute."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"actors.cdi.{node.module}" if node.level else node.module


def test_it_imports_the_document_reader_attrs_and_the_standard_library():
    for module in LIBRARY.glob("*.py"):
        for name in imports(module):
            top = name.partition(".")[0]
            own = any(name == each or name.startswith(f"{each}.") for each in OWN)
            assert own or top == "attrs" or (top in sys.stdlib_module_names and top != "actors"), (module.name, name)


def test_one_module_alone_knows_the_operating_system():
    assert [module.name for module in LIBRARY.glob("*.py") if "os" in imports(module)] == ["host.py"]


def test_the_contract_of_the_import_linter_names_every_other_module():
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [
        each for each in contracts if each["source_modules" if "source_modules" in each else "name"] == ["actors.cdi"]
    ]
    there = {
        f"actors.{path.stem}"
        for path in ROOT.iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem != "__init__"
    }
    assert there - OWN == {name for name in contract["forbidden_modules"] if name.startswith("actors.")}
    assert {"statemachine", "supervisor", "sim"} <= set(contract["forbidden_modules"])


def test_importing_it_loads_no_other_part_and_no_event_loop():
    code = "import sys, actors.cdi; print(*sorted(name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"anyio", "asyncio", "trio", "supervisor", "sim", "cattrs", "blake3", "subprocess", "socket"}


def test_everything_public_is_exported_and_documented():
    assert sorted(actors.cdi.__all__) == sorted(set(actors.cdi.__all__))
    for name in actors.cdi.__all__:
        value = getattr(actors.cdi, name)
        if isinstance(value, type) or callable(value):
            assert value.__doc__, name


def test_types_are_shipped():
    assert (ROOT / "py.typed").exists()
    wheel = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "actors" in wheel["only-include"]


EXAMPLE = re.search(r"```python\n(.*?)```", (CHECKOUT / "docs" / "cdi.md").read_text(), re.DOTALL)
SPEC = json.dumps(spec(device("0", deviceNodes=[{"path": "/dev/null"}]), kind="vendor.com/null"))
CONFIG = '{"ociVersion": "1.2.0", "process": {"args": ["sh"], "cwd": "/"}, "root": {"path": "rootfs"}}'


def test_the_example_of_the_documentation_is_ten_lines_and_injects(tmp_path):
    assert EXAMPLE is not None
    code = EXAMPLE[1]
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) <= 10
    (tmp_path / "null.json").write_text(SPEC)
    (tmp_path / "config.json").write_text(CONFIG)
    # A program outside Greenroom: another process, another directory, nothing but the import path.
    code = code.replace("nvidia.com/gpu=0", "vendor.com/null=0").replace('"/etc/cdi"', repr(str(tmp_path)))
    (tmp_path / "program.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "config.json").read_text()
    assert '"/dev/null"' in made
    assert '"fileMode"' in made
