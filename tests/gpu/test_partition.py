import pytest

from actors.gpu.inventory import Inventory
from actors.gpu.partition import Claim, Grant, Holder, Loss, Pool, Ticket, admit, grant, lost_grants, release
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.gpu.making import claims, gpu, inventory, problems

FOUR = inventory(2, 3, 5, 7)


def admitted(found, *actors, pool=None):
    """A pool to which actors were admitted in this order, each `(uid, claims)`."""
    made = pool or Pool()
    for uid, wanted in actors:
        made = admit(made, found, uid, wanted)
    return made


def granted(pool, found, *uids):
    for uid in uids:
        pool = grant(pool, found, uid)
    return pool


def grants(pool, uid):
    return {each.container: each.gpus for each in pool.ticket(uid).grants}


A, B = ("a", claims(trainer=1, eval=1, logger=0)), ("b", claims(trainer=2))


def test_containers_take_the_lowest_devices_in_the_order_of_their_declaration():
    pool = granted(admitted(FOUR, A, B), FOUR, "a", "b")
    assert grants(pool, "a") == {"trainer": ("GPU-2",), "eval": ("GPU-3",), "logger": ()}
    assert grants(pool, "b") == {"trainer": ("GPU-5", "GPU-7")}
    assert pool.holders["GPU-7"] == Holder(uid="b", container="trainer", ordinal=1)


def test_who_was_admitted_first_gets_the_lower_devices_whoever_comes_to_partitioning_first():
    pool = granted(admitted(FOUR, A, B), FOUR, "b", "a")
    assert grants(pool, "a") == {"trainer": ("GPU-2",), "eval": ("GPU-3",), "logger": ()}
    assert grants(pool, "b") == {"trainer": ("GPU-5", "GPU-7")}


def test_resumed_in_the_other_order_each_gets_other_devices_and_its_ordinals_hold():
    pool = granted(admitted(FOUR, A, B), FOUR, "a", "b")
    pool = release(release(pool, "a"), "b")
    pool = granted(admitted(FOUR, B, A, pool=pool), FOUR, "b", "a")
    assert grants(pool, "b") == {"trainer": ("GPU-2", "GPU-3")}
    assert grants(pool, "a") == {"trainer": ("GPU-5",), "eval": ("GPU-7",), "logger": ()}


def test_what_is_booked_is_not_given_to_another():
    (problem,) = problems(admitted, FOUR, A, B, ("c", claims(x=1)))
    assert (problem.reason, problem.step) == (Reason.INSUFFICIENT_GPUS, Step.ADMISSION)
    assert "a has booked 2" in problem.message
    assert "b has booked 2" in problem.message
    assert problem.message.startswith("1 claimed, but 0 of 4 can be had")


def test_a_refusal_names_the_holders_and_changes_nothing():
    pool = granted(admitted(FOUR, B), FOUR, "b")
    (problem,) = problems(admit, pool, FOUR, "c", claims(x=3))
    assert problem.message == "3 claimed, but 2 of 4 can be had: b holds 2"
    assert admit(pool, FOUR, "c", claims(x=2)).ticket("c") is not None


def test_a_refusal_names_the_lost_gpus():
    (problem,) = problems(admit, Pool(), inventory(0, 1, lost={1: "XID 79"}), "a", claims(x=2))
    assert problem.reason == Reason.INSUFFICIENT_GPUS
    assert problem.message == "2 claimed, but 1 of 2 can be had: /dev/nvidia1 is lost (XID 79)"


def test_a_refusal_names_so_many_holders_and_counts_the_others():
    found = inventory(*range(40))
    pool = admitted(found, *((f"a{number}", claims(x=2)) for number in range(20)))
    (problem,) = problems(admit, pool, found, "b", claims(x=1))
    assert "a15 has booked 2" in problem.message
    assert "a16" not in problem.message
    assert "4 more actors" in problem.message


def test_a_pod_without_gpus_is_another_reason_than_one_whose_gpus_are_taken():
    (problem,) = problems(admit, Pool(), Inventory(), "a", claims(x=1))
    assert problem.reason == Reason.GPU_NOT_DETECTED


def test_mig_is_the_reason_where_the_claim_would_fit_without_it():
    found = Inventory([gpu(0), gpu(1, mig_devices=("MIG-a",))])
    (problem,) = problems(admit, Pool(), found, "a", claims(x=2))
    assert problem.reason == Reason.MIG_UNSUPPORTED
    assert "/dev/nvidia1" in problem.message
    (problem,) = problems(admit, Pool(), found, "a", claims(x=3))
    assert problem.reason == Reason.INSUFFICIENT_GPUS


def test_an_actor_that_claims_nothing_has_no_ticket_and_needs_no_gpu():
    assert admit(Pool(), Inventory(), "a", claims(x=0, y=0)) == Pool()
    assert admit(Pool(), Inventory(), "a", ()) == Pool()


def test_admission_twice_is_admission_once_and_never_with_other_claims():
    pool = admitted(FOUR, A)
    assert admit(pool, FOUR, *A) == pool
    with pytest.raises(ValueError, match="other claims"):
        admit(pool, FOUR, "a", claims(trainer=1))


def test_a_grant_is_kept_when_it_is_asked_for_again():
    pool = granted(admitted(FOUR, A, B), FOUR, "b")
    pool = release(pool, "a")
    assert granted(pool, FOUR, "b") == pool


def test_a_grant_without_a_ticket_is_a_fault_of_the_caller():
    with pytest.raises(KeyError):
        grant(Pool(), FOUR, "a")


def test_a_lost_gpu_leaves_the_free_set_and_comes_back():
    lost = FOUR.with_lost("GPU-2", "XID 79")
    pool = granted(admitted(lost, A), lost, "a")
    assert grants(pool, "a")["trainer"] == ("GPU-3",)
    (problem,) = problems(admit, pool, lost, "b", claims(x=2))
    assert "1 of 4 can be had" in problem.message
    assert granted(admitted(FOUR, B, pool=pool), FOUR, "b").ticket("b").held == ("GPU-2", "GPU-7")


def test_a_lost_gpu_that_is_held_is_not_counted_against_the_free_ones():
    pool = granted(admitted(FOUR, A), FOUR, "a")
    lost = FOUR.with_lost("GPU-2", "XID 79")
    assert granted(admitted(lost, B, pool=pool), lost, "b").ticket("b").held == ("GPU-5", "GPU-7")
    assert lost_grants(pool, lost) == {"a": (Loss(uuid="GPU-2", path="/dev/nvidia2", why="XID 79"),)}
    assert lost_grants(pool, FOUR) == {}


def test_a_gpu_that_is_held_and_was_replaced_is_lost():
    pool = granted(admitted(FOUR, A), FOUR, "a")
    replaced = FOUR.succeeded_by(Inventory((gpu(2, uuid="GPU-other"), *FOUR.gpus[1:])))
    (loss,) = lost_grants(pool, replaced)["a"]
    assert (loss.uuid, loss.path) == ("GPU-2", "GPU-2")


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (FOUR.with_lost("GPU-3", "XID 79"), "XID 79"),
        (inventory(2), "not there"),
        (Inventory([gpu(2), gpu(3, mig_devices=())]), "MIG mode"),
    ],
)
def test_a_kept_grant_with_a_lost_gpu_is_refused(found, why):
    pool = granted(admitted(FOUR, A), FOUR, "a")
    (problem,) = problems(grant, pool, found, "a")
    assert (problem.reason, problem.step) == (Reason.GPU_LOST, Step.PARTITION)
    assert "GPU-3" in problem.message
    assert why in problem.message


def test_when_gpus_are_lost_after_the_booking_the_last_one_admitted_goes_without():
    pool = admitted(FOUR, A, B)
    lost = FOUR.with_lost("GPU-7", "XID 79")
    (problem,) = problems(grant, pool, lost, "b")
    assert (problem.reason, problem.step) == (Reason.INSUFFICIENT_GPUS, Step.PARTITION)
    assert problem.message == "2 claimed, but 1 of 4 can be had: a has booked 2; /dev/nvidia7 is lost (XID 79)"
    assert granted(pool, lost, "a").ticket("a").held == ("GPU-2", "GPU-3")
    assert granted(pool, FOUR, "b").ticket("b").held == ("GPU-5", "GPU-7")


def test_where_more_is_booked_than_is_left_none_can_be_had():
    lost = FOUR.with_lost("GPU-2", "XID 79").with_lost("GPU-3", "XID 79")
    (problem,) = problems(admit, admitted(FOUR, A, B), lost, "c", claims(x=1))
    assert problem.message.startswith("1 claimed, but 0 of 4 can be had")


def test_giving_back_what_one_does_not_have_changes_nothing():
    pool = admitted(FOUR, A)
    assert release(pool, "b") == pool
    assert release(pool, "a") == Pool()


def test_a_pool_in_which_a_gpu_has_two_holders_cannot_be_made():
    one = Ticket(number=1, uid="a", claims=claims(x=1), grants=(Grant("x", ("GPU-0",)),))
    two = Ticket(number=2, uid="b", claims=claims(x=1), grants=(Grant("x", ("GPU-0",)),))
    with pytest.raises(ValueError, match="holder"):
        Pool((one, two))
    with pytest.raises(ValueError, match="holder"):
        Pool((Ticket(number=1, uid="a", claims=claims(x=2), grants=(Grant("x", ("GPU-0", "GPU-0")),)),))


@pytest.mark.parametrize(("number", "uid", "what"), [(1, "b", "ticket"), (2, "a", "actor")])
def test_a_pool_with_one_ticket_or_one_actor_twice_cannot_be_made(number, uid, what):
    with pytest.raises(ValueError, match=what):
        Pool((Ticket(number=1, uid="a", claims=claims(x=1)), Ticket(number=number, uid=uid, claims=claims(x=1))))


@pytest.mark.parametrize("given", [(), (Grant("x", ()),), (Grant("y", ("GPU-0",)),), (Grant("x", ("GPU-0", "GPU-1")),)])
def test_a_grant_that_is_not_the_claim_cannot_be_made(given):
    with pytest.raises(ValueError, match="not its claims"):
        Ticket(number=1, uid="a", claims=claims(x=1), grants=given)


def test_a_claim_of_less_than_nothing_cannot_be_made():
    with pytest.raises(ValueError, match="-1"):
        Claim("x", -1)


def test_tickets_that_were_read_in_any_order_are_in_the_order_of_admission():
    pool = admitted(FOUR, A, B)
    assert Pool(reversed(pool.tickets)) == pool
    assert [ticket.uid for ticket in pool.tickets] == ["a", "b"]
