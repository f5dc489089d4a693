"""How far a sweep is, told to a terminal and to nobody else."""

import io

import pytest

from greenroom import run
from tests.sim.grids.in_this_process import TRACE


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("is_terminal", "told"), [(True, True), (False, False)])
def test_rows_are_counted_on_a_terminal_alone(monkeypatch, capfd, is_terminal, told):
    stderr = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    assert run(["sim", "sweep", str(TRACE), "--seeds", "0:2", "--processes", "1"]) == 0
    assert all((word in stderr.getvalue()) is told for word in ("sweep", "2/2", "rows"))
    assert "verdict: Held" in capfd.readouterr().out
