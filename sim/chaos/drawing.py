"""Draws the plan of a seed. Swarm testing: not only what happens is drawn, but also what can happen in this run at all.

Most kinds of faults do not come in most runs, so that the few that do come often meet each other.
"""

from __future__ import annotations

import random  # noqa: TID251 - seeded: a plan is drawn from its seed and nothing else
from typing import TYPE_CHECKING, Final

from sim.chaos.config import CampaignConfig
from sim.chaos.kinds import MISHAP_KINDS
from sim.chaos.mishaps import draw_mishap
from sim.chaos.plan import Assign, Command, Plan, PlannedActor, PlannedContainer, Program, Vanish
from sim.chaos.port_faults import draw_fault
from sim.world.runsc.settings import Flavour

if TYPE_CHECKING:
    from sim.chaos.plan import Deed

_STANDARD: Final = CampaignConfig()
_STORED, _STORED_MORE = 0.2, 0.8
"""How many actors have a store, and where stores are to fail."""
_WITH_CGROUPS, _CLAIMING, _RESTARTING, _DURABLE, _BY_FILE = 0.8, 0.7, 0.3, 0.15, 0.2
"""How many machines, containers and actors are so."""
_SMALL_IMAGE_BYTES: Final = 1 << 16
_PROGRAMS: Final = {
    Program.IDLE: 12,
    Program.COUNT: 2,
    Program.DEAF: 2,
    Program.ENDS: 1,
    Program.FAILS: 1,
    Program.MISSING: 1,
}
_WISHES: Final = {
    "suspend": 6,
    "resume": 6,
    "stop": 2,
    "Running": 3,
    "Suspended": 2,
    "Terminated": 1,
    "cold": 1,
    "vanish": 1,
}
MILLISECONDS: Final = 3
"""Times are drawn to so many decimals: a repro is read by people."""


def plan_of(seed: int, config: CampaignConfig = _STANDARD) -> Plan:
    """The plan of a seed."""
    chance = random.Random(f"chaos {seed}")  # noqa: S311 - a simulation wants to be repeated
    rates = _rates(chance, config)
    gpus = chance.randrange(config.gpus_max + 1)
    lasts_s = round(chance.uniform(config.lasts_min_s, config.lasts_max_s), MILLISECONDS)
    stored = _STORED_MORE if any(rate and "store" in kind for kind, rate in rates.items()) else _STORED
    actors = tuple(
        _actor(chance, f"a{number}", gpus, stored=stored)
        for number in range(1, 1 + chance.randint(1, config.actors_max))
    )
    wishes = _wishes(chance, config, actors, lasts_s)
    kinds = _kinds(chance, config, rates)
    mishaps = [
        mishap
        for kind in kinds
        if kind in MISHAP_KINDS
        and (mishap := draw_mishap(chance, kind, at_s=_time(chance, lasts_s), actors=actors, gpus=gpus)) is not None
    ]
    others = [kind for kind in kinds if kind not in MISHAP_KINDS]
    faults = [draw_fault(chance, kind, id_=f"f{number}", lasts_s=lasts_s) for number, kind in enumerate(others, 1)]
    return Plan(
        seed=seed,
        gpus=gpus,
        # Where GPUs are, the older runsc knows older drivers.
        flavour=chance.choice(tuple(Flavour)),
        has_cgroups=chance.random() < _WITH_CGROUPS,
        state_bytes=chance.choice((0, 0, _SMALL_IMAGE_BYTES)),
        lasts_s=lasts_s,
        actors=actors,
        deeds=tuple(sorted((*wishes, *mishaps), key=lambda deed: deed.at_s)),
        faults=tuple(faults),
    )


def _actor(chance: random.Random, uid: str, gpus: int, *, stored: float) -> PlannedActor:
    programs, weights = tuple(_PROGRAMS), tuple(_PROGRAMS.values())
    count = chance.choice((1, 1, 1, 2, 3))
    containers = tuple(
        PlannedContainer(
            program=chance.choices(programs, weights)[0],
            gpus=min(chance.choice((0, 1, 1, 2)), gpus) if gpus and chance.random() < _CLAIMING else 0,
        )
        for _ in range(count)
    )
    while sum(each.gpus for each in containers) > gpus:
        containers = tuple(PlannedContainer(program=each.program, gpus=max(0, each.gpus - 1)) for each in containers)
    return PlannedActor(
        uid=uid,
        containers=containers,
        restarts=chance.random() < _RESTARTING,
        is_durable=chance.random() < _DURABLE,
        is_stored=chance.random() < stored,
        by_file=chance.random() < _BY_FILE,
        grace_s=chance.choice((1, 5)),
    )


def _rates(chance: random.Random, config: CampaignConfig) -> dict[str, float]:
    """How often each kind comes beside the others in this run; most do not come at all."""
    rates = {
        kind: 0.0 if chance.random() < config.quiet_share else config.weights.get(kind, 1.0) * chance.random()
        for kind in config.kinds
    }
    if not any(rates.values()) and config.kinds:
        rates[chance.choice(config.kinds)] = 1.0
    return rates


def _wishes(
    chance: random.Random, config: CampaignConfig, actors: tuple[PlannedActor, ...], lasts_s: float
) -> list[Deed]:
    wishes: list[Deed] = []
    generations = dict.fromkeys((each.uid for each in actors), 1)
    for each in actors:
        at_s = _time(chance, min(2.0, lasts_s / 2))
        wishes.append(Assign(at_s=at_s, uid=each.uid, generation=1, state="Running"))
    words, weights = tuple(_WISHES), tuple(_WISHES.values())
    times = sorted(_time(chance, lasts_s) for _ in range(chance.randint(1, config.wishes_max)))
    for at_s in times:
        who = chance.choice(actors)
        word = chance.choices(words, weights)[0]
        if word in {"suspend", "resume", "stop"}:
            wishes.append(Command(at_s=at_s, uid=who.uid, op=word))
        elif word == "vanish":
            wishes.append(Vanish(at_s=at_s, uid=who.uid))
        else:
            generations[who.uid] += 1
            state, cold = ("Running", True) if word == "cold" else (word, False)
            wishes.append(Assign(at_s=at_s, uid=who.uid, generation=generations[who.uid], state=state, cold=cold))
    return wishes


def _kinds(chance: random.Random, config: CampaignConfig, rates: dict[str, float]) -> list[str]:
    """The kinds of the faults of a run, one for each."""
    possible = [kind for kind, rate in rates.items() if rate > 0]
    count = chance.randint(0, config.faults_max) if possible else 0
    return chance.choices(possible, [rates[kind] for kind in possible], k=count) if count else []


def _time(chance: random.Random, lasts_s: float) -> float:
    return round(chance.uniform(0.0, lasts_s), MILLISECONDS)
