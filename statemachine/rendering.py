"""The table as text: an aligned timetable, Mermaid and DOT diagrams, and the generated parts of docs/machine.md.

Pure: every function returns text and takes the one TABLE. `greenroom machine` prints them, `scripts/render-docs` writes
them into docs/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from .cells import Go, Ignore
from .events import ANSWERS, EVENTS, FAILURES
from .states import DEADLINE_S, FINAL, RESTING, STARTING, STEP_OF, State
from .table import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .cells import Cell

_WAY_UP: Final = "WayUp"
_RESTING_STYLE: Final = "classDef resting font-weight:bold,stroke-width:3px"
_HEADINGS: Final = ("state", "event", "when", "then", "commands", "remembered")
_FETCHED: Final = "and an hour for a snapshot that is fetched from a store"
_EXTRA_TIME: Final = {
    State.INJECTING: _FETCHED,
    State.RESTORING: f"{_FETCHED}, where nothing is injected",
    State.VERIFYING: "and the longest wakeup probe",
    State.STOPPING: "and the termination grace period",
    State.BACKING_OFF: "and the delay itself: 1, 2, 4, … at most 60 s",
}
_MAIN_PATH: Final = (
    "direction LR",
    "[*] --> Assigned",
    "Assigned --> Detecting: a GPU is claimed",
    "Detecting --> Generating",
    "Generating --> Partitioning",
    "Partitioning --> Injecting",
    "Injecting --> Creating: cold",
    "Injecting --> Restoring: from a snapshot",
    "Assigned --> Creating: nothing claimed",
    "Assigned --> Restoring: nothing claimed",
    "Creating --> Verifying",
    "Restoring --> Verifying",
    "Verifying --> Running",
    "Running --> Suspending: suspend",
    "Suspending --> Releasing: the snapshot is proven",
    "Suspending --> Thawing: refused or failed",
    "Thawing --> Running",
    "Releasing --> Suspended",
    "Suspended --> Assigned: resume",
    "Running --> Stopping: stop",
    "Suspended --> Stopping: stop",
    "Stopping --> Terminated",
    "Terminated --> [*]",
)


@attrs.frozen
class Edge:
    """All rows from one state to another: the names of their events, in the order of the vocabulary."""

    source: State
    target: State
    events: tuple[str, ...]


def edges() -> tuple[Edge, ...]:
    """Every way from one state to another; what stays is left out."""
    found: dict[tuple[State, State], list[str]] = {}
    for state in State:
        for kind in EVENTS:
            for cell in TABLE[state, kind]:
                if isinstance(cell, Go) and cell.target is not state:
                    names = found.setdefault((state, cell.target), [])
                    if kind.__name__ not in names:
                        names.append(kind.__name__)
    return tuple(Edge(source, target, tuple(names)) for (source, target), names in found.items())


def as_table() -> str:
    """The whole table, one row a line, in aligned columns; what is no transition says why.

    The answers that a state ignores because no step of it gives them are one row a state.
    """
    rows = [_HEADINGS, *(row for state in State for row in _rows(state))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines) + "\n"


def as_mermaid() -> str:
    """All states and all ways between them as a Mermaid state diagram, which GitHub draws.

    What every state of the way up shares is drawn once, from the box around them.
    """
    shared = _shared_ways()
    inside: list[str] = []
    outside = [f"    {_WAY_UP} --> {target}: {_label(events)}" for target, events in shared.items()]
    for edge in edges():
        known = shared.get(edge.target, ()) if edge.source in STARTING else ()
        own = tuple(name for name in edge.events if name not in known)
        if not own:
            continue
        within = edge.source in STARTING and edge.target in STARTING
        text = f"    {edge.source} --> {edge.target}: {_label(own)}"
        (inside if within else outside).append(f"    {text}" if within else text)
    lines = [
        "stateDiagram-v2",
        f"    {_RESTING_STYLE}",
        "    [*] --> Assigned",
        f'    state "the way up" as {_WAY_UP} {{',
        *inside,
        "    }",
        *outside,
        *(f"    {state} --> [*]" for state in State if state in FINAL),
        f"    class {','.join(state for state in State if state in RESTING)} resting",
    ]
    return "\n".join(lines) + "\n"


def overview() -> str:
    """The main path alone as a Mermaid state diagram, in few words, for the README."""
    lines = ["stateDiagram-v2", *(f"    {line}" for line in _MAIN_PATH)]
    lines += [f"    {_RESTING_STYLE}", "    class Running,Suspended resting"]
    return "\n".join(lines) + "\n"


def overview_edges() -> tuple[tuple[State, State], ...]:
    """The ways that the overview draws, so that a test can hold it against the table."""
    pairs = [line.partition(":")[0].split(" --> ") for line in _MAIN_PATH if " --> " in line and "[*]" not in line]
    return tuple((State(source.strip()), State(target.strip())) for source, target in pairs)


def as_dot() -> str:
    """All states and all ways between them in Graphviz's language."""
    lines = ["digraph greenroom {", "    rankdir=TB;", '    node [shape=box, style=rounded, fontname="sans-serif"];']
    for state in State:
        shape = "bold" if state in RESTING else "rounded"
        peripheries = 2 if state in FINAL else 1
        lines.append(f'    {state} [style="{shape}", peripheries={peripheries}];')
    for edge in edges():
        label = "\\n".join(edge.events)
        lines.append(f'    {edge.source} -> {edge.target} [label="{label}"];')
    return "\n".join([*lines, "}"]) + "\n"


def as_deadline_table() -> str:
    """Every state with its step and its deadline, in Markdown."""
    lines = ["| state | step | deadline |", "|---|---|---|"]
    for state in State:
        if state in DEADLINE_S:
            extra = f", {_EXTRA_TIME[state]}" if state in _EXTRA_TIME else ""
            lines.append(f"| {state} | {STEP_OF[state]} | {DEADLINE_S[state]:g} s{extra} |")
        else:
            kind = "final" if state in FINAL else "resting"
            lines.append(f"| **{state}** | none: {kind} | none |")
    return "\n".join(lines) + "\n"


def as_markdown() -> str:
    """The whole table in Markdown, one section a state."""
    parts = []
    for state in State:
        lines = [f"### {state}", "", "| event | when | then | commands | remembered |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(text.replace("|", "\\|") for text in row[1:]) + " |" for row in _rows(state)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _label(events: Iterable[str]) -> str:
    return "<br/>".join(events)


def _shared_ways() -> dict[State, tuple[str, ...]]:
    """The targets outside the way up that every state of it has, with the events that all have for it."""
    by_target: dict[State, list[set[str]]] = {}
    for edge in edges():
        if edge.source in STARTING and edge.target not in STARTING:
            by_target.setdefault(edge.target, []).append(set(edge.events))
    every = {target: set.intersection(*found) for target, found in by_target.items() if len(found) == len(STARTING)}
    return {
        target: tuple(kind.__name__ for kind in EVENTS if kind.__name__ in names) for target, names in every.items()
    }


def _rows(state: State) -> Iterator[tuple[str, ...]]:
    late = []
    for kind in EVENTS:
        if _is_late_answer(state, kind):
            late.append(kind)
            continue
        for cell in TABLE[state, kind]:
            yield _row(state, kind, cell)
    (cell,) = {cell for kind in late for cell in TABLE[state, kind] if isinstance(cell, Ignore)}
    yield str(state), "(every other answer)", "", f"ignored: {cell.why}", "", ""


def _row(state: State, kind: type, cell: Cell) -> tuple[str, ...]:
    when = "" if cell.when.name == "Always" else cell.when.name
    if isinstance(cell, Go):
        target = "(stays)" if cell.target is state else str(cell.target)
        commands = ", ".join(order.kind.__name__ for order in cell.orders)
        return str(state), kind.__name__, when, target, commands, ", ".join(update.name for update in cell.remember)
    if isinstance(cell, Ignore):
        return str(state), kind.__name__, when, f"ignored: {cell.why}", "", ""
    return str(state), kind.__name__, when, f"refused: {cell.reason}", "", ""


def _is_late_answer(state: State, kind: type) -> bool:
    """Whether a state merely ignores an answer, because no step of it gives that one."""
    return kind in {*ANSWERS, *FAILURES} and all(isinstance(cell, Ignore) for cell in TABLE[state, kind])
