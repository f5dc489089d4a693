"""Sweeps on a real Dask cluster of processes, of which some are killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.needs import ROOT
from tests.sim.grids.dask_cluster import DaskCluster, dask_cluster, is_busy, kill, until
from tests.sim.grids.in_this_process import TRACE

pytestmark = pytest.mark.long

SEEDS = range(12)
SWEEP = [sys.executable, "-m", "greenroom", "sim", "sweep", str(TRACE), "--seeds", f"0:{len(SEEDS)}"]


@contextmanager
def sweeping(cluster: DaskCluster, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, under way; killed at the end where it has not come to its own."""
    argv = [*SWEEP, "--scheduler", cluster.address, "-o", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def parts(folder: Path) -> list[Path]:
    return sorted((folder / "parts").glob("[!.]*.parquet"))


def rows(path: Path) -> list[dict[str, Any]]:
    """Without what differs from run to run."""
    return [{**row, "cpu_s": 0} for row in parquet.read_table(path, partitioning=None).to_pylist()]


def kill_in_the_middle(cluster: DaskCluster, folder: Path, process: subprocess.Popen[str]) -> None:
    """Kill the first worker once some rows are there, and while it makes others."""
    until(lambda: parts(folder) and is_busy(cluster.workers[0]), process)
    kill(cluster.workers[0])


def test_a_worker_is_killed_in_the_middle_and_every_row_is_there_once_and_as_it_is_made_here(tmp_path):
    with dask_cluster(tmp_path, workers=2) as cluster, sweeping(cluster, tmp_path / "kept") as process:
        kill_in_the_middle(cluster, tmp_path / "kept", process)
        told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    found = rows(tmp_path / "kept" / "sweep.parquet")
    assert [row["seed"] for row in found] == list(SEEDS)
    assert sorted(row["seed"] for path in parts(tmp_path / "kept") for row in rows(path)) == list(SEEDS)
    here = subprocess.run([*SWEEP, "-o", tmp_path / "here"], cwd=ROOT, capture_output=True, check=True, timeout=300)
    assert b"verdict: Held" in here.stdout
    assert found == rows(tmp_path / "here" / "sweep.parquet")


def test_the_only_worker_is_killed_and_another_one_comes(tmp_path):
    with dask_cluster(tmp_path, workers=2) as cluster:
        kill(cluster.workers[1])
        with sweeping(cluster, tmp_path / "kept") as process:
            kill_in_the_middle(cluster, tmp_path / "kept", process)
            later = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.address, "--no-nanny"]
            more = ["--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path / "later")]
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            with subprocess.Popen(
                [*later, *more], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
            ) as worker:
                told, _ = process.communicate(timeout=300)
                worker.kill()
    assert process.returncode == 0, told
    assert [row["seed"] for row in rows(tmp_path / "kept" / "sweep.parquet")] == list(SEEDS)
    left = list((tmp_path / "later").rglob("greenroom-*"))
    assert left == []


def test_the_scheduler_is_killed_and_the_sweep_says_so_and_goes_on_here(tmp_path):
    folder = tmp_path / "kept"
    with dask_cluster(tmp_path, workers=1) as cluster, sweeping(cluster, folder) as process:
        until(lambda: parts(folder), process)
        kill(cluster.scheduler)
        told, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    assert told.splitlines()[-1].startswith("error: SweepUnavailable: "), told
    count = sum(len(rows(path)) for path in parts(folder))
    assert 0 < count < len(SEEDS)
    here = subprocess.run([*SWEEP, "-o", folder], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    assert f"{len(SEEDS)} rows, {count} of them from before" in here.stdout
    assert [row["seed"] for row in rows(folder / "sweep.parquet")] == list(SEEDS)


def test_a_scheduler_that_does_not_answer_is_told():
    argv = [*SWEEP, "--scheduler", "tcp://127.0.0.1:1"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: SweepUnavailable: the cluster of tcp://127.0.0.1:1 ")
