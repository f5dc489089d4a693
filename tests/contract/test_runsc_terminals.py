"""A command that is executed at a terminal: runsc is told its kind, and sees by itself that it is one."""

import json
import platform
import sys

import pytest

from actors.confine_elf import confine_at_terminal_elf
from tests.contract.faces import on
from tests.needs import ROOT

# A process of its own, since whoever reaps for the bench would take what is started here.
DRIVER = """
import json, os, subprocess, sys, time
from supervisor.host import procfs, spawning
program, sandbox, kill, *argv = sys.argv[1:]
kill = json.loads(kill)
ours, theirs = os.openpty()
given = (os.open(program, os.O_RDONLY | os.O_CLOEXEC), 3) if program else None
pid = spawning.posix_spawn_at_terminal(argv, {"PATH": "/usr/bin:/bin"}, terminal=os.ttyname(theirs), program=given)
os.close(theirs)
shown = b""
while b"begun\\r\\n" not in shown:
    shown += os.read(ours, 4096)
until, pid_file, inside = time.monotonic() + 60, kill.pop(), ""
while not inside and time.monotonic() < until:  # it is written by who dies when we close the other side
    inside = open(pid_file).read().strip() if os.path.exists(pid_file) else ""
    time.sleep(0.01)
seen = [procfs.has_terminal(int(sandbox))]
os.close(ours)  # the other side of its terminal: whoever has it open goes on having it open
seen.append(procfs.has_terminal(int(sandbox)))
subprocess.run([*kill, "kill", f"--pid={inside}", "c1", "KILL"], env={}, check=False, capture_output=True)
os.waitpid(pid, 0)
while procfs.has_terminal(int(sandbox)) and time.monotonic() < until:
    time.sleep(0.01)
seen.append(procfs.has_terminal(int(sandbox)))
print(json.dumps([shown.decode(), seen]))
"""


@pytest.mark.parametrize("is_confined", [False, True])
def test_a_sandbox_has_the_terminal_of_a_command_open_until_that_ends_also_when_nobody_is_at_the_other_side(
    every_face, is_confined
):
    @on(every_face)
    async def _(bench):
        await bench.up(c1="exec sleep 1000")
        assert (await bench.run("exec", "--env=TERM=vt100", "c1", "true")).code == 0
        if bench.kind == "model":
            return  # it has no terminals
        inside, program = bench.directory / "inside.pid", bench.directory / "confine"
        program.write_bytes(confine_at_terminal_elf(platform.machine()))
        program.chmod(0o755)
        runsc = [bench.runsc, f"--root={bench.root}", f"--log={bench.directory}/terminal.log", *bench.flags]
        options = ["--exec-fd=3"] if is_confined else []
        words = ["confine", "/bin/sh", ""] if is_confined else []
        finished = await bench.processes.run(
            (
                sys.executable, "-c", DRIVER, str(program) if is_confined else "", str(await bench.pid()),
                json.dumps([*runsc, str(inside)]), *runsc, "exec", *options, "--env=TERM=vt100",
                f"--internal-pid-file={inside}", "c1", *words, "sh", "-c", "trap '' HUP; echo begun; exec sleep 1000",
            ),
            deadline_s=90, env={"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert finished.exit.code == 0, finished.stderr.decode()
        shown, seen = json.loads(finished.stdout)
        assert shown.replace("\r", "") == "begun\n"
        assert seen == [True, True, False]
