"""Schedulers choose among the workers that have room, each by its rule, and never grant what is not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.fleet.schedulers import SCHEDULERS, Claim, Place, Room, named_scheduler, place_on
from statemachine.problem import ProblemError
from statemachine.reasons import Reason


def a_room(*workers, cpu_milli=None):
    """Open workers of (model, GPUs, free GPUs)."""
    room = Room()
    for index, (model, gpus, free) in enumerate(workers):
        name = f"w{index}"
        room.add(
            Place(
                name=name,
                model=model,
                index=index,
                gpus=gpus,
                free_gpus=free,
                free_cpu_milli=cpu_milli,
                free_memory_bytes=None,
                free_actors=10,
            )
        )
        room.open(name)
    return room


WORKERS = (("A", 8, 4), ("A", 8, 2), ("B", 8, 8), ("A", 8, 2), ("B", 2, 0))


@pytest.mark.parametrize(
    ("claim", "first_fit", "best_fit", "spread"),
    [
        (Claim(1), "w0", "w1", "w2"),
        (Claim(3), "w0", "w0", "w2"),
        (Claim(5), "w2", "w2", "w2"),
        (Claim(9), None, None, None),
        (Claim(0), "w0", "w4", "w2"),
        (Claim(1, ("B",)), "w2", "w2", "w2"),
        (Claim(1, ("B", "A")), "w0", "w1", "w2"),
        (Claim(1, ("C",)), None, None, None),
        (Claim(1, worker="w3"), "w3", "w3", "w3"),
        (Claim(1, worker="w4"), None, None, None),
        (Claim(1, worker="elsewhere"), None, None, None),
    ],
)
def test_each_scheduler_chooses_by_its_rule(claim, first_fit, best_fit, spread):
    chosen = {name: place_on(a_room(*WORKERS), claim, scheduler) for name, scheduler in SCHEDULERS.items()}
    names = {name: None if place is None else place.name for name, place in chosen.items()}
    assert names == {"first-fit": first_fit, "best-fit": best_fit, "spread": spread}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_worker_that_is_closed_or_gone_or_full_is_never_chosen(name):
    room = a_room(("A", 1, 1), ("A", 1, 1), ("A", 1, 1), ("A", 1, 1))
    room.close("w0")
    room.remove("w1")
    room.take("w2", Claim(1))
    place = place_on(room, Claim(1), SCHEDULERS[name])
    assert place is not None
    assert place.name == "w3"


@pytest.mark.parametrize("name", SCHEDULERS)
def test_cpu_is_counted_where_the_worker_says_how_much_it_has(name):
    room = a_room(("A", 8, 8), cpu_milli=1000)
    room.take("w0", Claim(1, cpu_milli=800))
    assert place_on(room, Claim(1, cpu_milli=300), SCHEDULERS[name]) is None
    assert place_on(room, Claim(1, cpu_milli=200), SCHEDULERS[name]) is not None


def test_a_name_that_no_scheduler_has_is_refused_with_those_there_are():
    with pytest.raises(ProblemError) as caught:
        named_scheduler("worst-fit")
    assert caught.value.problem.reason is Reason.CONFIG_REFUSED
    assert "best-fit" in caught.value.problem.message


MODELS = st.sampled_from(["A", "B"])
CLAIMS = st.builds(
    Claim,
    st.integers(0, 4),
    st.lists(MODELS, unique=True, max_size=2).map(tuple),
    st.sampled_from([0, 300]),
)


@given(
    st.lists(st.tuples(MODELS, st.integers(0, 8)), min_size=1, max_size=6),
    st.lists(st.one_of(CLAIMS, st.integers(0, 30)), max_size=40),
    st.sampled_from(sorted(SCHEDULERS)),
)
def test_nothing_is_promised_twice_and_everything_comes_back(workers, deeds, name):
    room = a_room(*((model, gpus, gpus) for model, gpus in workers), cpu_milli=1000)
    promised = []
    for deed in deeds:
        if isinstance(deed, Claim):
            fits = [each.name for each in room.places.values() if each.has_room_for(deed)]
            place = place_on(room, deed, SCHEDULERS[name])
            # It finds a worker exactly when there is one, though it does not look at each.
            assert (place.name in fits) if place is not None else not fits
            if place is not None:
                room.take(place.name, deed)
                promised.append((place.name, deed))
        elif promised:
            room.give_back(*promised.pop(deed % len(promised)))
        for place in room.places.values():
            taken = [claim for worker, claim in promised if worker == place.name]
            assert place.free_gpus == place.gpus - sum(claim.gpus for claim in taken) >= 0
            assert place.free_cpu_milli == 1000 - sum(claim.cpu_milli for claim in taken) >= 0
