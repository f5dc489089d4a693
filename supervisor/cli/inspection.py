"""`greenroom status`, `wait`, `logs`: what only looks."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Any

import click
import orjson

from statemachine.problem import beyond
from statemachine.states import State
from supervisor.cli.asking import Seconds, ask, json_option, run_dir_option
from supervisor.cli.columns import aligned

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("uid", required=False)
@run_dir_option
@json_option
def status(uid: str | None, run_dir: Path, as_json: bool) -> None:
    """Show the worker and its actors, or one actor."""
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


@click.command()
@click.argument("uid")
@click.option("-c", "--container", help="The container; all of them when left out.")
@run_dir_option
def logs(uid: str, container: str | None, run_dir: Path) -> None:
    """Print what an actor's containers have written so far."""
    names = [container] if container else [each["name"] for each in ask(run_dir, "status", uid=uid)["containers"]]
    for name in names:
        for piece in _pieces(run_dir, uid, name):
            sys.stdout.buffer.write(_labelled(name, piece) if len(names) > 1 else piece)
    sys.stdout.buffer.flush()


def _pieces(run_dir: Path, uid: str, container: str) -> Any:
    """The log in pieces that end with a line, but for the last."""
    offset_bytes, rest = 0, b""
    end_bytes: int | None = None
    while True:
        answer = ask(run_dir, "logs", uid=uid, container=container, offset_bytes=offset_bytes)
        # What is written from now on is not waited for: a container may write faster than we read.
        end_bytes = answer["size_bytes"] if end_bytes is None else end_bytes
        data = base64.b64decode(answer["data"])[: max(end_bytes - offset_bytes, 0)]
        if not data:
            break
        offset_bytes += len(data)
        whole, newline, rest = (rest + data).rpartition(b"\n")
        yield whole + newline
    yield rest


def _labelled(name: str, piece: bytes) -> bytes:
    """Each line with its container's name before it; a last line that is not whole gets its end."""
    lines = piece.removesuffix(b"\n").split(b"\n") if piece else []
    return b"".join(f"{name}: ".encode() + line + b"\n" for line in lines)


def _show_worker(result: dict[str, Any]) -> None:
    worker = result["worker"]
    runsc = worker["runsc"]
    click.echo(
        f"worker  {worker['state']}  runsc {runsc['version']} ({runsc['platform']})  network {worker['network']}"
    )
    for problem in worker["problems"]:
        click.echo(f"refused {problem['file']}: {problem['subject']}: {problem['reason']}: {problem['message']}")
    rows = [("UID", "NAME", "GENERATION", "STATE", "SINCE", "CONTAINERS", "ERROR")]
    rows += [
        (
            actor["uid"],
            actor["name"] or "-",
            str(actor["generation"]),
            actor["state"],
            actor["since"],
            " ".join(_container(each) for each in actor["containers"]),
            actor["error"]["reason"] if actor["error"] else "-",
        )
        for actor in result["actors"]
    ]
    for line in aligned(rows):
        click.echo(line)


def _show_actor(actor: dict[str, Any]) -> None:
    click.echo(f"{actor['uid']}  {actor['state']} since {actor['since']}, generation {actor['generation']}")
    click.echo(f"desired state  {actor['desiredState']}")
    for each in actor["containers"]:
        click.echo(f"container      {_container(each)}")
    if actor["lastGoodSnapshot"]:
        snapshot = actor["lastGoodSnapshot"]
        click.echo(f"snapshot       {snapshot['id']} of {snapshot['createdAt']} at {snapshot['uri']}")
        if snapshot.get("storedUri"):
            click.echo(f"stored         {snapshot['storedUri']}")
    if actor.get("forced"):
        click.echo("forced         restored, or tried to be, whatever differs from the snapshot; its journal says what")
    if actor["error"]:
        error = actor["error"]
        click.echo(f"error          {error['reason']} in {error['step']}: {error['message']}")
        click.echo(f"hint           {error['hint']}")
        for line in beyond(error["message"], error["detail"]).splitlines():
            click.echo(f"               {line}")


def _container(each: dict[str, Any]) -> str:
    code = "" if each["exitCode"] is None else f"({each['exitCode']})"
    return f"{each['name']}={each['state']}{code}"
