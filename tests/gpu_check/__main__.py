"""Checks a real GPU with what was carried along: see `checks` for what is looked at.

Ends with 0 when all is well, 1 when something is not, 77 when it is not possible on this machine, and says why.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from . import reports
from .checks import CHECKS, NEEDS
from .commands import CheckError, Clock
from .package import Package
from .places import Bench, Places
from .reports import EXIT_NOT_POSSIBLE, Outcome

TOTAL_S: Final = 300.0


def obstacle(package: Package, places: Places) -> str | None:
    """Why nothing can be checked here, or None."""
    if not places.gpu_minors():
        return f"there is no GPU: {places.dev_root / 'dev'} has no device node nvidia0, nvidia1, …"
    if os.geteuid() != 0:
        return "gVisor and device nodes need root"
    return package.obstacle()


def check(bench: Bench, name: str, ended: list[Outcome]) -> Outcome:
    """One check; one whose needs did not end well is not begun."""
    begun = time.monotonic()

    def outcome(status: str, detail: str) -> Outcome:
        return Outcome(name=name, status=status, took_s=round(time.monotonic() - begun, 2), detail=detail)

    lacking = [each.name for each in ended if each.name in NEEDS.get(name, ()) and not each.is_good]
    if lacking:
        return outcome("not reached", f"it needs {', '.join(lacking)}")
    try:
        return outcome("ok", CHECKS[name](bench))
    except CheckError as error:
        return outcome("fail", str(error))
    except Exception as error:  # noqa: BLE001 - whatever one check meets, the others are still made
        return outcome("fail", f"{type(error).__name__}: {error}")


def clear(scratch: Path, sweep: Callable[[Path], None]) -> None:
    """Remove the scratch directory, whatever is still mounted in it."""
    sweep(scratch)
    shutil.rmtree(scratch, ignore_errors=True)


def unmount(scratch: Path) -> None:
    """A runtime that was killed leaves its mounts."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed(points):
        if point.startswith(f"{scratch}/"):
            subprocess.run(["umount", "-l", point], check=False, timeout=20)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--package", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help="a file for the result as JSON")
    parser.add_argument("--dev-root", type=Path, default=Path("/"))
    parser.add_argument("--driver-root", type=Path, default=Path("/"))
    parser.add_argument("--proc-root", type=Path, default=Path("/proc"))
    parser.add_argument("--nvidia-smi", default="nvidia-smi", help="the program, when it is not in PATH")
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="this check; may be repeated")
    given = parser.parse_args(arguments)
    places = Places(
        dev_root=given.dev_root, driver_root=given.driver_root, proc_root=given.proc_root, nvidia_smi=given.nvidia_smi
    )
    package = Package.at(given.package)
    why = obstacle(package, places)
    if why is not None:
        sys.stderr.write(f"gpu-check: not possible on this machine: {why}\n")
        reports.write(given.report, code=EXIT_NOT_POSSIBLE, why=why, outcomes=[], found={})
        return EXIT_NOT_POSSIBLE
    scratch = Path(tempfile.mkdtemp(prefix="greenroom-gpu-check-"))
    bench = Bench(package=package, places=places, scratch=scratch, clock=Clock(TOTAL_S))
    ended: list[Outcome] = []
    try:
        for name in CHECKS:
            if name == "unpack" or not given.only or name in given.only:
                ended.append(check(bench, name, ended))
                reports.tell(ended[-1])
    finally:
        clear(scratch, unmount)
    code = reports.exit_code(ended)
    reports.write(given.report, code=code, why=None, outcomes=ended, found=bench.found)
    good = sum(each.is_good for each in ended)
    sys.stdout.write(f"gpu-check: {good} of {len(ended)} checks passed\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
