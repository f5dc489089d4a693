import functools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gpu.facts import ErrorFact, InventoryFact, ProcessesFact, XidFact
from actors.gpu.inventory import UNSEEN, Inventory
from actors.gpu.view import SILENT, NvmlAnswers, NvmlFails, after, after_monitor_ended, inventory_of
from actors.gpu.xids import LOSING
from statemachine.problem import Step
from statemachine.reasons import Reason
from tests.gpu.making import inventory, problems

SEEN = InventoryFact(driver="570.1", inventory=inventory(0, 1))
DOWN = ErrorFact(call="nvmlInit", error="NVML_ERROR_UNKNOWN", message="Unknown Error")


def view(*facts):
    return functools.reduce(after, facts, SILENT)


def processes(*facts):
    found = view(*facts)
    assert isinstance(found, NvmlAnswers)
    return found.processes


def losses(found):
    return [each.lost for each in found.inventory.gpus]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (SILENT, "has not spoken"),
        (view(DOWN), "nvmlInit: NVML_ERROR_UNKNOWN: Unknown Error"),
        (view(SEEN, DOWN), "nvmlInit: NVML_ERROR_UNKNOWN"),
        (after_monitor_ended(view(SEEN), "the monitor was ended by signal 11"), "signal 11"),
    ],
)
def test_a_failure_is_a_reason_and_never_a_pod_without_gpus(found, why):
    (problem,) = problems(inventory_of, found, step=Step.DETECT)
    assert (problem.reason, problem.step, problem.subject) == (Reason.NVML_UNAVAILABLE, Step.DETECT, "nvml")
    assert why in problem.message


def test_a_failure_clears_by_itself():
    assert inventory_of(view(SEEN, DOWN, SEEN), step=Step.DETECT) == SEEN.inventory


def test_no_gpus_is_what_nvml_says_and_nothing_else():
    empty = InventoryFact(driver="570.1", inventory=Inventory())
    assert inventory_of(view(empty), step=Step.DETECT) == Inventory()


@given(st.lists(st.sampled_from([SEEN, DOWN, XidFact(gpu="GPU-0", xid=79), ProcessesFact(gpu="GPU-0", pids=(1,))])))
def test_there_is_an_inventory_exactly_when_the_last_word_on_nvml_was_one(facts):
    words = [fact for fact in facts if fact in (SEEN, DOWN)]
    assert isinstance(view(*facts), NvmlAnswers) == (bool(words) and words[-1] == SEEN)


@pytest.mark.parametrize("xid", sorted(LOSING))
def test_a_fatal_xid_takes_its_gpu_out_at_once_and_the_next_good_look_brings_it_back(xid):
    lost = view(SEEN, XidFact(gpu="GPU-1", xid=xid))
    assert losses(lost) == [None, f"XID {xid}"]
    assert losses(after(lost, SEEN)) == [None, None]


@pytest.mark.parametrize("xid", [13, 31, 43, 94, 999])
def test_an_xid_of_an_application_and_an_unknown_one_take_nothing_out(xid):
    assert view(SEEN, XidFact(gpu="GPU-1", xid=xid)) == view(SEEN)


def test_an_xid_without_a_gpu_takes_nothing_out():
    assert view(SEEN, XidFact(gpu=None, xid=79)) == view(SEEN)


def test_a_gpu_that_nvml_calls_lost_is_lost_and_the_others_stay():
    error = ErrorFact(call="nvmlDeviceGetUUID", error="NVML_ERROR_GPU_IS_LOST", gpu="GPU-1")
    assert losses(view(SEEN, error)) == [None, "NVML_ERROR_GPU_IS_LOST"]
    harmless = ErrorFact(call="nvmlDeviceGetMigMode", error="NVML_ERROR_NOT_SUPPORTED", gpu="GPU-1")
    assert view(SEEN, harmless) == view(SEEN)


def test_a_gpu_that_is_missing_after_a_failure_is_lost_and_not_forgotten():
    fewer = InventoryFact(driver="570.1", inventory=inventory(0))
    assert losses(view(SEEN, DOWN, fewer)) == [None, UNSEEN]


def test_a_gpu_that_nvml_counts_and_cannot_name_is_not_passed_over():
    found = view(attrs.evolve(SEEN, unread=("NVML_ERROR_GPU_IS_LOST",)))
    assert isinstance(found, NvmlAnswers)
    assert found.unread == ("NVML_ERROR_GPU_IS_LOST",)
    assert found != view(SEEN)


def test_processes_that_were_not_told_are_not_taken_for_none():
    told = ProcessesFact(gpu="GPU-0", pids=(9, 4))
    assert processes(SEEN, told) == {"GPU-0": (4, 9)}
    assert processes(SEEN, told, SEEN) == {"GPU-0": (4, 9)}
    assert processes(SEEN, told, DOWN, SEEN) == {}
    assert processes(SEEN, told, XidFact(gpu="GPU-0", xid=13), ProcessesFact(gpu="GPU-0", pids=())) == {"GPU-0": ()}
    untold = ErrorFact(call="nvmlDeviceGetComputeRunningProcesses", error="NVML_ERROR_NO_PERMISSION", gpu="GPU-0")
    assert processes(SEEN, told, untold) == {}
    assert isinstance(view(DOWN, untold), NvmlFails)


def test_a_view_cannot_be_changed_through_what_was_given_to_it():
    given_processes = {"GPU-0": (1,)}
    found = NvmlAnswers(driver="1", inventory=Inventory(), processes=given_processes)
    given_processes["GPU-1"] = (2,)
    assert found.processes == {"GPU-0": (1,)}
    assert isinstance(after(found, DOWN), NvmlFails)
