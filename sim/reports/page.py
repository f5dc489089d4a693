"""The page: one HTML file that needs no other one and asks no network. The same results make the same bytes."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from sim.reports import durations, heat, run, slowest, summary, timeline, troubles
from sim.reports.elements import Markup, element, joined
from supervisor.host.surroundings import read_small

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim.reports.run import Run, Runs

_HERE: Final = Path(__file__).parent


def page(runs: Runs) -> bytes:
    """One run, or the comparison of two."""
    title = runs[0].result.source if len(runs) == 1 else f"{runs[0].label} and {runs[1].label}"
    parts = [
        element("h1", title, _badge(runs)),
        *(
            element("p", _key(each, colour, runs), summary.about(each), class_="about")
            for each, colour in _coloured(runs)
        ),
        summary.remarks(runs),
        summary.summary(runs),
        section("Fleet over time", timeline.legend(runs), timeline.note(runs), timeline.timeline(runs)),
        section(
            "GPU occupancy",
            heat.scale(),
            *(part for each in runs for part in (_caption(each, runs, heat.left_out(each)), heat.heat_map(each, runs))),
        ),
        section(
            "How long each step takes",
            timeline.legend(runs),
            element("p", "Bar: from the median to p95. Line: up to the longest, with a mark at p99.", class_="note"),
            durations.durations(runs),
        ),
        section("Failures by reason", troubles.failures(runs), troubles.faults(runs)),
        section(
            "Slowest activations",
            element(
                "p",
                "Each row is one activation, from being asked to Running. Bars are all of one width: they show"
                " which steps its time went into.",
                class_="note",
            ),
            slowest.legend({name: None for each in runs for slow in each.result.slowest for name in slow.steps}),
            *(part for each in runs for part in (_caption(each, runs), slowest.slowest(each))),
        ),
        section("Invariants", troubles.invariants(runs)),
    ]
    return document(title, parts, {"timeline": timeline.script_data(runs), "heat": heat.script_data(runs)})


def document(title: str, parts: list[Markup], data: Mapping[str, Any]) -> bytes:
    """A whole document, with our style and our script; the browser lets no other one run, nor anything be fetched."""
    looks, script = style(), _text("page.js")
    policy = f"default-src 'none'; img-src data:; style-src {_hash(looks)}; script-src {_hash(script)}"
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} - Greenroom"),
        element("style", Markup(looks)),
    ]
    body = [
        element("main", *parts),
        element("div", id="tip", role="status"),
        element("script", _data(data), id="data", type="application/json"),
        element("script", Markup(script)),
    ]
    whole = element("html", element("head", *head), element("body", *body), lang="en")
    return b"<!doctype html>\n" + whole.encode() + b"\n"


def style() -> str:
    """The style sheet of every page and picture."""
    return _text("page.css")


def _data(data: Mapping[str, Any]) -> Markup:
    """JSON inside of HTML: without `<`, nothing in it can end the element."""
    return Markup(orjson.dumps(data).decode().replace("<", "\\u003c"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _text(name: str) -> str:
    return read_small(_HERE / name).decode()


def _coloured(runs: Runs) -> list[tuple[Run, str]]:
    return list(zip(runs, run.CLASSES, strict=False))


def _key(each: Run, colour: str, runs: Runs) -> Markup:
    if len(runs) == 1:
        return Markup()
    return joined((element("span", class_=f"swatch {colour}"), element("b", f"{each.label} ")))


def _badge(runs: Runs) -> Markup:
    verdicts = sorted({str(each.result.verdict) for each in runs})
    is_held = verdicts == ["Held"]
    word = "every invariant held" if is_held else "an invariant was violated"
    return element("span", word, class_=f"badge {'good' if is_held else 'bad'}")


def section(title: str, *parts: str) -> Markup:
    """A part of a page, with its title."""
    return element("section", element("h2", title), *parts)


def _caption(each: Run, runs: Runs, remark: str = "") -> Markup:
    """Above what is there once for each run."""
    words = [word for word in (each.label if len(runs) > 1 else "", remark) if word]
    return element("h3", ": ".join(words)) if words else Markup()
