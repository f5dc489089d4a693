"""The figures on top of a page: tiles of one run, or a table in which two are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from sim.reports import wording
from sim.reports.elements import Markup, element, escaped, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sim.replay.results import ReplayResult
    from sim.reports.run import Run, Runs


@attrs.frozen
class Figure:
    """One number of a result.

    Attributes:
        name: what it is called.
        of: takes it from a result.
        shown: says it to a person.
        better: 1 when more is better, -1 when less is, 0 when it is neither.
        changed: says to a person what became of it.
        counts: how many things it is told of; where there are none, it says nothing.
        blur: so large a part of it may be due to how it is measured alone.
    """

    name: str
    of: Callable[[ReplayResult], float]
    shown: Callable[[float], str]
    better: int = 0
    changed: Callable[[float, float], str] = wording.change
    counts: Callable[[ReplayResult], float] = lambda _it: 1
    blur: float = 0.0

    def said(self, result: ReplayResult) -> str:
        """To a person."""
        return self.shown(self.of(result)) if self.counts(result) else "-"

    def verdict(self, old: float, new: float) -> int:
        """1 if it became better, -1 if it became worse; 0 if neither, or if nobody can tell."""
        is_clear = abs(new - old) > self.blur * max(old, new)
        return self.better * ((new > old) - (new < old)) if is_clear else 0


def held_share(result: ReplayResult) -> float:
    """How much of the GPUs' time somebody held them."""
    held, free = result.gpu_seconds["held"], result.gpu_seconds["free"]
    return held / (held + free) if held + free else 0.0


PERCENTILE_BLUR: Final = 0.021
"""Of two percentiles: each is known to a hundredth (`sim.replay.quantiles`)."""


def _activation(name: str, column: str) -> Figure:
    def of(result: ReplayResult) -> float:
        return result.activation_s[column]

    blur = 0.0 if column == "max" else PERCENTILE_BLUR
    return Figure(name, of, wording.seconds, -1, counts=lambda it: it.activation_s["count"], blur=blur)


FIGURES: Final = (
    _activation("activation p50", "p50"),
    _activation("activation p95", "p95"),
    _activation("activation p99", "p99"),
    _activation("slowest activation", "max"),
    Figure(
        "suspend p95",
        lambda it: it.suspend_s["p95"],
        wording.seconds,
        -1,
        counts=lambda it: it.suspend_s["count"],
        blur=PERCENTILE_BLUR,
    ),
    Figure("density, actors per GPU", lambda it: it.density, wording.amount, 1),
    Figure("GPU time held", held_share, wording.share, changed=wording.points),
    Figure("cost, by the config's prices", lambda it: it.cost, wording.amount, -1),
    Figure("activations", lambda it: it.lifecycles, wording.count),
    Figure("failures", lambda it: sum(it.failures.values()), wording.count, -1),
    Figure("still waiting at the end", lambda it: it.states.get("Waiting", 0), wording.count, -1),
    Figure("workers ever there", lambda it: it.workers, wording.count),
    Figure("GPUs ever there", lambda it: it.gpus, wording.count),
)
_TILES: Final = (
    "activation p50", "activation p95", "activation p99", "slowest activation", "activations",
    "density, actors per GPU", "GPU time held", "cost, by the config's prices", "failures", "still waiting at the end",
)  # fmt: skip


def summary(runs: Runs) -> Markup:
    """Tiles, or the table."""
    return _tiles(runs[0].result) if len(runs) == 1 else _compared(runs)


def _tiles(result: ReplayResult) -> Markup:
    shown = [figure for figure in FIGURES if figure.name in _TILES]
    tiles = [
        element(
            "div",
            element("div", figure.said(result), class_="value"),
            element("div", figure.name, class_="label"),
            class_="tile",
        )
        for figure in shown
    ]
    return element("div", *tiles, class_="tiles")


def _compared(runs: Runs) -> Markup:
    head = element(
        "tr",
        element("th", ""),
        *(element("th", run.label, class_="n") for run in runs),
        element("th", "change", class_="n"),
        element("th", ""),
    )
    table = element("table", element("thead", head), element("tbody", *_figures(runs)), class_="compared")
    return element("section", element("h2", "What changed"), table)


def _figures(runs: Runs) -> Iterator[Markup]:
    before, after = runs[0].result, runs[1].result
    for figure in FIGURES:
        old, new = figure.of(before), figure.of(after)
        said = figure.said(before), figure.said(after)
        is_told = "-" not in said
        seems_same = said[0] == said[1]
        verdict = figure.verdict(old, new) if is_told and not seems_same else 0
        kind, word = {1: ("good", "better"), -1: ("bad", "worse"), 0: ("", "")}[verdict]
        became = figure.changed(old, new) if is_told else "-"
        yield element(
            "tr",
            element("th", figure.name),
            *(element("td", each, class_="n") for each in said),
            element("td", "same" if seems_same else became, class_=f"n {kind}".strip()),
            element("td", word, class_=kind or None),
        )


def remarks(runs: Runs) -> Markup:
    """What a reader must know before the figures: what was not done, and what is not compared with its like."""
    told = [escaped(words) for words in _settings(runs)]
    told += [
        joined((element("b", f"{run.label}: "), words)) if len(runs) > 1 else escaped(words)
        for run in runs
        for words in _remarks(run.result)
    ]
    if len(runs) > 1 and (others := _others(runs[0].result, runs[1].result)):
        told.insert(0, escaped(f"Not of the same {others}: what differs may come from that."))
    return element("ul", *(element("li", each) for each in told), class_="remarks") if told else Markup()


def _settings(runs: Runs) -> Iterator[str]:
    """What of the config is not the default; of two that are compared, what they have otherwise than each other."""
    if len(runs) == 1:
        told = [f"{name} = {wording.setting(value)}" for name, value in runs[0].result.config.items()]
        yield from [f"Config: {', '.join(told)}."] if told else []
        return
    before, after = (run.result.config for run in runs)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            old, new = (wording.setting(each[name]) if name in each else "default" for each in (before, after))
            yield f"Changed: {name}, {old} → {new}."


def _remarks(result: ReplayResult) -> Iterator[str]:
    if result.skipped:
        yield (
            f"Passed over: {wording.count(result.skipped)} of {wording.several(result.rows, 'record')}, which meant "
            "nothing where they came."
        )
    yield from (f"{note[:1].upper()}{note[1:]}." for note in result.notes)


def _others(before: ReplayResult, after: ReplayResult) -> str:
    """In what two replays differ beside their configs."""
    of: tuple[tuple[str, Callable[[ReplayResult], object]], ...] = (
        ("trace", lambda it: (it.source, it.rows)),
        ("seed", lambda it: it.seed),
        ("engine", lambda it: it.engine),
    )
    return " and ".join(word for word, value in of if value(before) != value(after))


def about(run: Run) -> str:
    """What was replayed, with what, in one sentence."""
    it = run.result
    return (
        f"{it.source}: {wording.several(it.rows, 'record')} on {wording.several(it.workers, 'worker')} with "
        f"{wording.several(it.gpus, 'GPU')}, {wording.seconds(it.virtual_s)} in the {it.engine} engine, "
        f"seed {it.seed}; {wording.several(it.transitions, 'transition')}."
    )
