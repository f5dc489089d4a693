"""`greenroom status` and `wait`: what only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import orjson

from statemachine.problem import beyond
from statemachine.states import State
from supervisor.cli.asking import Seconds, ask, json_option, run_dir_option
from supervisor.cli.columns import aligned
from supervisor.cli.status_rows import COLUMNS, container_word, row_of

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("uid", required=False)
@run_dir_option
@json_option
@click.option("-w", "--watch", is_flag=True, help="Go on showing it, at every change; with --json a document a line.")
def status(uid: str | None, run_dir: Path, as_json: bool, watch: bool) -> None:
    """Show the worker and its actors, or one actor."""
    if watch:
        from supervisor.cli.status_watching import watch_status  # noqa: PLC0415 - rich is slow to import

        watch_status(run_dir, uid, as_json=as_json)
        return
    result = ask(run_dir, "status", uid=uid)
    if as_json:
        click.echo(orjson.dumps(result))
    elif uid is None:
        _show_worker(result)
    else:
        _show_actor(result)


@click.command()
@click.argument("uid")
@click.option("--for", "wanted", type=click.Choice([str(state) for state in State]), required=True)
@click.option("--timeout", "timeout_s", type=Seconds(), default=300.0, show_default=True, help="Seconds.")
@run_dir_option
@json_option
def wait(uid: str, wanted: str, timeout_s: float, run_dir: Path, as_json: bool) -> None:
    """Wait until an actor is in a state; fails as soon as that cannot come without a new request."""
    result = ask(run_dir, "wait", uid=uid, state=wanted, timeout_s=timeout_s, bound_s=timeout_s)
    click.echo(orjson.dumps(result) if as_json else f"{uid}: {result['state']}")


def _show_worker(result: dict[str, Any]) -> None:
    worker = result["worker"]
    runsc = worker["runsc"]
    click.echo(
        f"worker  {worker['state']}  runsc {runsc['version']} ({runsc['platform']})  network {worker['network']}"
    )
    for problem in worker["problems"]:
        click.echo(f"refused {problem['file']}: {problem['subject']}: {problem['reason']}: {problem['message']}")
    if more := worker.get("problemsLeftOut"):
        click.echo(f"refused: {more} more reasons, in the state directory's refused/")
    rows = [COLUMNS, *map(row_of, result["actors"])]
    for line in aligned(rows):
        click.echo(line)


def _show_actor(actor: dict[str, Any]) -> None:
    click.echo(f"{actor['uid']}  {actor['state']} since {actor['since']}, generation {actor['generation']}")
    click.echo(f"desired state  {actor['desiredState']}")
    for each in actor["containers"]:
        click.echo(f"container      {container_word(each)}")
    if actor["lastGoodSnapshot"]:
        snapshot = actor["lastGoodSnapshot"]
        click.echo(f"snapshot       {snapshot['id']} of {snapshot['createdAt']} at {snapshot['uri']}")
        if snapshot.get("storedUri"):
            click.echo(f"stored         {snapshot['storedUri']}")
    if actor.get("forced"):
        click.echo("forced         restored, or tried to be, whatever differs from the snapshot; its journal says what")
    for notice in actor.get("notices", ()):
        often = f", {notice['count']} times" if notice["count"] > 1 else ""
        click.echo(f"notice         {notice['reason']}{often}, last {notice['last']}: {notice['message']}")
    if actor["error"]:
        error = actor["error"]
        click.echo(f"error          {error['reason']} in {error['step']}: {error['message']}")
        click.echo(f"hint           {error['hint']}")
        for line in beyond(error["message"], error["detail"]).splitlines():
            click.echo(f"               {line}")
