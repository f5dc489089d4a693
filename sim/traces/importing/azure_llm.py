"""Azure's LLM inference traces (2023 and 2024): requests, which are drawn onto actors that serve them.

The traces do not tell who asked whom. Each request goes to one of K actors, the k-th of them with a weight of
1 / k ** skew (Zipf's law), by the seed. An actor is assigned when it is first asked, and works on a request for the
time that its tokens take.

Source: github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md and 2024.md.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import attrs

from sim.traces.activity import suspended_when_idle
from sim.traces.drawing import Chance, Zipf, numbered
from sim.traces.ordering import from_zero, in_order
from sim.traces.records import Assignment, Container, Header, Record, Resume

from .rows import BadRowError, BadRows, Row, label, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sim.traces.records import Scalar

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
TOKENS_MAX: Final = 10_000_000
PROMPT_TOKENS_PER_S: Final = 8000.0
"""A round number of ours: so fast the tokens of a prompt are taken in."""
GENERATED_TOKENS_PER_S: Final = 60.0
"""Llama 3 70B on four H200, eight requests at a time: 128 tokens in 2.08 s.

Source: vLLM's performance benchmark, build 9515 (buildkite.com/vllm/performance-benchmark).
"""


@attrs.frozen(kw_only=True)
class AzureLlm:
    """How requests are imported.

    Attributes:
        actors: so many serve them.
        seed: of who serves which.
        skew: how much more the first ones are asked than the last; 0 is all alike.
        idle_timeout_s: an actor that was idle for so long is suspended; None leaves that to the fleet.
        gpus: of each actor.
        model: that these must have.
        prompt_tokens_per_s: how fast a prompt is taken in.
        generated_tokens_per_s: how fast an answer is made.
    """

    actors: int = 100
    seed: int = 0
    skew: float = 1.0
    idle_timeout_s: float | None = 60.0
    gpus: int = 1
    model: str | None = None
    prompt_tokens_per_s: float = PROMPT_TOKENS_PER_S
    generated_tokens_per_s: float = GENERATED_TOKENS_PER_S


def import_azure_llm(files: Sequence[Path], how: AzureLlm, bad: BadRows) -> tuple[Header, Iterator[Record]]:
    """The trace of these files. The header's notes are whole when the first record is taken.

    Raises, while records are taken:
        ProblemError: UnreadableFile; InvalidRow.
    """
    notes: dict[str, Scalar] = {
        "requests": 0, "actors": how.actors, "skew": how.skew, "idleTimeout_s": how.idle_timeout_s,
        "promptTokensPerS": how.prompt_tokens_per_s, "generatedTokensPerS": how.generated_tokens_per_s,
    }  # fmt: skip
    header = Header(source=f"Azure LLM: {', '.join(map(label, files))}", seed=how.seed, notes=notes)
    requests = bad.judged(from_zero(in_order(_requests(files, how, bad, notes)), notes), notes)
    return header, suspended_when_idle(_drawn(requests, how), how.idle_timeout_s)


def _requests(files: Sequence[Path], how: AzureLlm, bad: BadRows, notes: dict[str, Scalar]) -> Iterator[Record]:
    """Each request as a resume of nobody yet."""
    count = 0
    for path in files:
        for row in rows(path, COLUMNS, bad):
            try:
                request = _request(row, how)
            except BadRowError as error:
                bad.add(path, row.number, str(error))
                continue
            count += 1
            notes["requests"] = count
            yield request


def _request(row: Row, how: AzureLlm) -> Resume:
    prompt, generated = (row.whole(column, most=TOKENS_MAX) for column in COLUMNS[1:])
    busy_s = prompt / how.prompt_tokens_per_s + generated / how.generated_tokens_per_s
    return Resume(at_s=_epoch_s(row.cells["TIMESTAMP"]), actor="nobody", busy_s=round(busy_s, 6))


def _epoch_s(text: str) -> float:
    """Seconds since 1970, UTC where no zone is named; what is below a microsecond is cut off."""
    try:
        moment = dt.datetime.fromisoformat(text)
        at_s = (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
    except (ValueError, OverflowError):
        at_s = -1.0
    if at_s < 0:
        raise BadRowError(f"TIMESTAMP is {text!r:.80}, which is no time such as 2023-11-16 18:17:03.979960") from None
    return at_s


def _drawn(requests: Iterable[Record], how: AzureLlm) -> Iterator[Record]:
    chance, popularity = Chance(how.seed, "azure-llm"), Zipf(how.actors, how.skew)
    known: set[int] = set()
    for request in requests:
        index = popularity.draw(chance)
        actor = numbered("llm", index, how.actors)
        if index not in known:
            known.add(index)
            containers = (Container(name="server", gpus=how.gpus),)
            yield Assignment(at_s=request.at_s, actor=actor, containers=containers, model=how.model, class_="llm")
        yield Resume(at_s=request.at_s, actor=actor, busy_s=request.busy_s if isinstance(request, Resume) else None)
