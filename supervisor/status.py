"""The status, in the shapes that DESIGN fixes: of one actor, and of the whole worker. Pure, but for writing a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from actors.codec import rfc3339
from statemachine.actor import OnDifference
from statemachine.states import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.layout import ActorDir
    from actors.ports import Files
    from statemachine.actor import ContainerFate, Snapshot
    from statemachine.problem import Problem
    from supervisor.life import Life
    from supervisor.worker import Worker

FORMAT = 1
PROBLEMS_MAX = 1000
"""Of the worker's, in one answer: thousands of documents may be refused, each for two hundred reasons. The rest is
counted, and stands in `refused/` like all of them."""
_CONTAINER_WORD: Final = {
    **dict.fromkeys((State.VERIFYING, State.RUNNING, State.SUSPENDING, State.THAWING, State.STOPPING), "Running"),
    **dict.fromkeys((State.RELEASING, State.SUSPENDED), "Suspended"),
    **dict.fromkeys((State.ROLLING_BACK, State.FAILED, State.TERMINATED), "Ended"),
}
"""What is said of a container that has no exit code; in every other state it is Waiting."""


def actor_status(life: Life, held: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """The status object of one actor. `held` is what each of its containers holds: UUIDs of GPUs, by ordinal."""
    actor = life.actor
    return {
        "uid": life.uid,
        "name": life.assignment.name,
        "namespace": life.assignment.namespace,
        "generation": life.assignment.generation,
        "desiredState": str(life.assignment.desired_state),
        "state": str(actor.state),
        "since": rfc3339(life.since_s),
        "error": problem_json(actor.problem),
        "notices": life.notices.as_json(),
        "forced": actor.on_difference is OnDifference.FORCE,
        "containers": [_container(fate, actor.state, held.get(fate.name, ())) for fate in actor.containers],
        "lastGoodSnapshot": _snapshot(actor.last_good),
    }


def worker_status(worker: Worker, *, boot_id: str) -> dict[str, Any]:
    """The status document of the worker."""
    runtime = worker.runtime
    problems = _problems(worker)
    return {
        "worker": {
            "state": "Draining" if worker.draining else "Ready",
            "bootId": boot_id,
            "ready": not worker.draining,
            "runsc": {
                "path": str(runtime.path),
                "version": runtime.version.text,
                "platform": runtime.flags.platform,
            },
            "network": runtime.flags.network,
            "nvproxy": str(worker.settings.nvproxy),
            "cgroups": worker.cgroups.as_json(),
            "gpus": worker.gpus.as_json(),
            "problems": problems[:PROBLEMS_MAX],
            "problemsLeftOut": len(problems[PROBLEMS_MAX:]),
        },
        "actors": [worker.status_of(life) for life in worker.lives],
    }


def _problems(worker: Worker) -> list[dict[str, Any]]:
    return [
        *(_problem(problem, None) for problem in worker.gpus.problems()),
        *(_problem(problem, file) for file, problems in sorted(worker.refused.items()) for problem in problems),
    ]


def _problem(problem: Problem, file: str | None) -> dict[str, Any]:
    """A problem of the worker's; of a refused document, or (None) of the pod."""
    return {"file": file, "subject": problem.subject, "reason": str(problem.reason), "message": problem.message}


def problem_json(problem: Problem | None) -> dict[str, str] | None:
    """The one shape of every error."""
    if problem is None:
        return None
    return {
        "step": str(problem.step),
        "reason": str(problem.reason),
        "subject": problem.subject,
        "message": problem.message,
        "hint": problem.hint,
        "detail": problem.detail,
    }


async def write_status(files: Files, directory: ActorDir, status: dict[str, Any]) -> None:
    """Replace `actors/<uid>/status.json`.

    Raises:
        OSError: it cannot be written.
    """
    await files.replace(directory.status, _document(status))


async def status_stands(files: Files, directory: ActorDir, status: dict[str, Any]) -> bool:
    """Whether `actors/<uid>/status.json` says just this."""
    document = _document(status)
    try:
        return await files.read(directory.status, limit_bytes=len(document)) == document
    except OSError:  # absent, or larger
        return False


def _document(status: dict[str, Any]) -> bytes:
    return orjson.dumps({"v": FORMAT, **status}) + b"\n"


def _container(fate: ContainerFate, state: State, gpus: tuple[str, ...]) -> dict[str, Any]:
    where = _CONTAINER_WORD.get(state, "Waiting") if fate.exit_code is None else "Exited"
    return {"name": fate.name, "state": where, "exitCode": fate.exit_code, "gpus": list(gpus)}


def _snapshot(snapshot: Snapshot | None) -> dict[str, Any] | None:
    if snapshot is None:
        return None
    return {
        "id": snapshot.id,
        "uri": snapshot.uri,
        "createdAt": rfc3339(snapshot.created_at),
        "storedUri": snapshot.stored_uri,
    }
