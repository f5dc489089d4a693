"""The metrics of a worker: what happens is counted once, what stands is told as it stands, and it can be read."""

import anyio
import pytest

from actors.gpu.facts import XidFact
from actors.gpu.inventory import Inventory
from actors.gpu.partition import Claim
from actors.gpu.view import NvmlAnswers
from actors.manifest import CHECKPOINT_FILES
from actors.ports import CgroupUsage
from statemachine import commands as c
from statemachine import events as e
from statemachine.problem import ProblemError, Step
from statemachine.reasons import Reason
from statemachine.states import State
from supervisor import operations, running
from supervisor.metrics import snapshot_sizes
from supervisor.metrics.catalogue import HEARD, METRICS, PER_ACTOR, SEEN, Kind
from supervisor.metrics.tallies import BOUNDS_S
from supervisor.spec_keeper import SpecCounts
from supervisor.usage import ActorUsage
from tests.fakes.nvml import DRIVER, put_nodes
from tests.fakes.performer import a_problem, failing
from tests.gpu.making import gpu
from tests.supervisor.lives import settled
from tests.supervisor.metrics.scraping import a_watched_stand
from tests.supervisor.storing import STORE, suspended, uploaded

pytestmark = pytest.mark.anyio

LATER = "greenroom_step_duration_seconds"


def counts_of(scraped, name, **labels):
    """How many a histogram has."""
    return scraped.value(f"{name}_count", **labels)


async def test_a_life_is_counted_by_its_transitions_and_steps():
    async with a_watched_stand() as watched:
        await watched.stand.running()
        await operations.suspend(watched.stand.worker, "a1")
        await watched.stand.until(State.SUSPENDED)
        scraped = await watched.scrape()
    told = scraped.all("greenroom_transitions_total")
    assert told[State.CREATING, State.VERIFYING] == told[State.VERIFYING, State.RUNNING] == 1
    assert told[State.RUNNING, State.SUSPENDING] == told[State.SUSPENDING, State.RELEASING] == 1
    assert sum(told.values()) == len(told)
    done = {step: counts_of(scraped, LATER, step=step, outcome="done") for step in Step}
    assert {step for step, count in done.items() if count} >= {Step.CREATE, Step.VERIFY, Step.SUSPEND, Step.RELEASE}
    assert done[Step.SUSPEND] == done[Step.RELEASE] == 1
    assert scraped.all("greenroom_actor_states") == {(State.SUSPENDED,): 1}
    assert scraped.all("greenroom_failures_total") == {}


async def test_a_failure_is_counted_once_by_its_step_and_reason_however_long_it_is_told():
    async with a_watched_stand() as watched:
        watched.stand.prepare["a1"] = lambda performer: performer.answers.update({c.CreateSandbox: failing()})
        await watched.stand.submit()
        await watched.stand.until(State.FAILED)
        await settled()
        scraped = await watched.scrape()
    assert scraped.all("greenroom_failures_total") == {(Reason.RUNTIME_FAILED, Step.CREATE): 1}
    assert counts_of(scraped, LATER, step=Step.CREATE, outcome="failed") == 1
    assert scraped.all("greenroom_actor_states") == {(State.FAILED,): 1}


async def test_a_step_that_is_given_up_is_counted_as_cancelled():
    async with a_watched_stand() as watched:
        holds = []
        watched.stand.prepare["a1"] = lambda performer: holds.append(performer.hold(c.CreateSandbox))
        await watched.stand.submit()
        await watched.stand.until(State.CREATING)
        await holds[0].begun.wait()
        await operations.stop(watched.stand.worker, "a1")
        await watched.stand.until(State.TERMINATED)
        scraped = await watched.scrape()
    assert counts_of(scraped, LATER, step=Step.CREATE, outcome="cancelled") == 1
    assert counts_of(scraped, LATER, step=Step.CREATE, outcome="done") is None


async def test_a_start_under_the_restart_policy_is_a_restart():
    async with a_watched_stand() as watched:
        assert (await watched.scrape()).value("greenroom_restarts_total") == 0
        actor = (await watched.stand.running()).actor
        watched.metrics.counts.entered("a1", actor, actor, e.BackoffElapsed())
        assert (await watched.scrape()).value("greenroom_restarts_total") == 1


async def test_a_refused_document_is_counted_with_each_problem_and_its_time():
    async with a_watched_stand() as watched:
        await watched.stand.running()
        await watched.stand.refused("a1", spec__sandboxClass="other")
        watched.stand.worker.observer.refused([a_problem(Reason.WRONG_TYPE), a_problem(Reason.INVALID_UID)])
        scraped = await watched.scrape()
    assert scraped.all("greenroom_refusals_total") == {(Reason.WRONG_TYPE,): 1, (Reason.INVALID_UID,): 1}
    assert counts_of(scraped, "greenroom_admission_duration_seconds", outcome="admitted") == 1
    assert counts_of(scraped, "greenroom_admission_duration_seconds", outcome="refused") == 1


async def test_an_upload_is_pending_until_it_is_stored():
    async with a_watched_stand(snapshot_store=STORE) as watched:
        before = await watched.scrape()
        await suspended(watched.stand, spec__suspend={})
        await uploaded(watched.stand)
        after = await watched.scrape()
    name = "greenroom_upload_duration_seconds"
    assert [counts_of(before, name, outcome=outcome) for outcome in ("stored", "failed")] == [0, 0]
    assert [counts_of(after, name, outcome=outcome) for outcome in ("stored", "failed")] == [1, 0]
    assert after.value("greenroom_uploads_pending") == 0


async def test_the_room_of_good_snapshots_is_that_of_their_manifests_each_read_once(monkeypatch):
    async with a_watched_stand() as watched:
        assert (await watched.scrape()).value("greenroom_snapshot_bytes") == 0
        for number, uid in enumerate(("a1", "a2", "a3"), 1):
            await suspended(watched.stand, number, uid, spec__suspend={})
        size = len(b"page") * len(CHECKPOINT_FILES)
        monkeypatch.setattr(snapshot_sizes, "READS_MAX", 2)
        some = await watched.scrape()
        assert [some.value("greenroom_snapshots"), some.value("greenroom_snapshot_bytes")] == [2, 2 * size]
        every = await watched.scrape()
        assert [every.value("greenroom_snapshots"), every.value("greenroom_snapshot_bytes")] == [3, 3 * size]
        for path in [path for path in watched.stand.files.content if path.name == "manifest.json"]:
            del watched.stand.files.content[path]  # nobody reads it again
        assert (await watched.scrape()).value("greenroom_snapshots") == 3
        watched.metrics._sizes._known.clear()
        assert (await watched.scrape()).value("greenroom_snapshots") == 0  # and what cannot be read is left out


async def test_a_trouble_is_counted_as_often_as_it_came():
    async with a_watched_stand() as watched:
        life = await watched.stand.running()
        await life.tell_trouble(a_problem(Reason.GPU_ERROR_REPORTED), 3)
        await life.tell_trouble(a_problem(Reason.GPU_ERROR_REPORTED))
        scraped = await watched.scrape()
    assert scraped.all("greenroom_notices_total") == {(Reason.GPU_ERROR_REPORTED,): 4}


async def test_gpus_are_told_by_the_words_of_the_status_in_which_a_withheld_one_is_lost():
    async with a_watched_stand() as watched:
        put_nodes(watched.stand.files, 0, 1, 2, 3)
        gpus = Inventory((gpu(0), gpu(1), gpu(2, lost="XID 79"), gpu(3))).withholding({"GPU-3": "XID 74"})
        watched.stand.nvml.say(NvmlAnswers(driver=DRIVER, inventory=gpus))
        await watched.stand.worker.gpus.grant("a1", [Claim("one", 1)])
        shown = sorted(each["state"] for each in watched.stand.worker.gpus.as_json())
        scraped = await watched.scrape()
    assert shown == ["Free", "Held", "Lost", "Lost"]
    assert scraped.all("greenroom_gpus") == {("Free",): 1, ("Held",): 1, ("Lost",): 2}
    assert scraped.value("greenroom_gpus", state="Withheld") is None


async def test_xids_and_monitors_are_told_by_what_is_made_of_them():
    async with a_watched_stand() as watched:
        for xid in (13, 13, 79):
            watched.stand.nvml.xids.add(XidFact(gpu="GPU-0", xid=xid), 0.0)
        watched.stand.nvml.replaced = 2
        scraped = await watched.scrape()
    assert scraped.all("greenroom_xids_total") == {("Tell",): 2, ("Lose",): 1}
    assert scraped.value("greenroom_xids_total", policy="Withhold") == 0
    assert scraped.value("greenroom_gpu_monitors_replaced_total") == 2


async def test_the_single_flight_of_cdi_specs_is_told():
    async with a_watched_stand() as watched:
        watched.stand.keeper.counts = SpecCounts(made=3, kept=4, failed=5, waiting=6, running=1, stuck=2)
        scraped = await watched.scrape()
    name = "greenroom_cdi_generations"
    assert scraped.all(f"{name}_total") == {("made",): 3, ("kept",): 4, ("failed",): 5}
    assert [scraped.value(f"{name}_{word}") for word in ("running", "waiting")] == [1, 6]
    assert scraped.value("greenroom_stuck_processes") == 2


async def test_the_workers_own_process_is_told_and_what_the_kernel_does_not_tell_is_left_out(monkeypatch):
    async with a_watched_stand(max_actors=7) as watched:
        watched.metrics.connections = lambda: 4
        scraped = await watched.scrape()
        usage = watched.stand.ports.processes.usage
        assert scraped.value("process_cpu_seconds_total") == usage.cpu_s
        assert scraped.value("process_resident_memory_bytes") == usage.resident_bytes
        assert scraped.value("greenroom_proportional_memory_bytes") == usage.proportional_bytes
        assert scraped.value("process_open_fds") == usage.open_files
        assert scraped.value("greenroom_zombies_reaped_total") == usage.reaped
        assert scraped.value("process_start_time_seconds") == watched.stand.wall.now_s()
        assert scraped.value("greenroom_actors_max") == 7
        assert scraped.value("greenroom_http_connections") == 4
        assert scraped.value("greenroom_build_info", version="0.1.0", runsc=watched.stand.worker.runtime.version.text)

        async def no_descriptor_left():
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(watched.stand.ports.processes, "own_usage", no_descriptor_left)
        scraped = await watched.scrape()
        assert scraped.value("process_cpu_seconds_total") is None
        assert scraped.value("greenroom_ready") == 1


async def test_events_that_nobody_has_taken_yet_are_told():
    async with a_watched_stand() as watched:
        life = await watched.stand.running()
        for _ in range(3):
            await life.feed(e.CleanupDue())  # it had no turn of the loop yet
        waiting = life.waiting
        assert waiting >= 1
        told = next(each for each in watched.metrics._seen() if each.metric.name == "greenroom_events_waiting")
        assert told.samples == (((), waiting),)
        await settled()
        assert (await watched.scrape()).value("greenroom_events_waiting") == 0


async def test_a_worker_that_is_not_there_yet_is_told_as_not_ready():
    async with a_watched_stand() as watched:
        worker, watched.health.worker = watched.health.worker, None
        scraped = await watched.scrape()
        assert scraped.value("greenroom_ready") == 0
        assert "greenroom_actor_states" not in scraped.families
        watched.health.worker = worker
        assert (await watched.scrape()).value("greenroom_ready") == 1


# ---- what each actor uses


USED = CgroupUsage(cpu_usec=1_500_000, memory_bytes=3, working_set_bytes=2, oom_kills=1)


def using(watched, monkeypatch, **usages):
    """These actors use so much, and it is noted who is asked for."""
    asked = []

    async def of_all(uids):
        asked.append(sorted(uids))
        return {uid: usages.get(uid, ActorUsage(why="not measured")) for uid in uids}

    monkeypatch.setattr(watched.stand.worker.usages, "of_all", of_all)
    return asked


async def test_case_040_what_each_actor_uses_is_told_when_that_is_wanted_and_what_is_not_measured_is_not_zero(
    monkeypatch,
):
    async with a_watched_stand(metrics_per_actor=True) as watched:
        asked = using(watched, monkeypatch, a1=ActorUsage(measured=USED, gpu_memory_bytes=6))
        await watched.stand.running("a1")
        await watched.stand.running("a2")
        await watched.stand.terminated("a3")
        scraped = await watched.scrape()
    assert asked == [["a1", "a2"]]  # who has ended uses nothing
    told = {each.name: scraped.all(each.name) for each in PER_ACTOR}
    assert told == {
        "greenroom_actor_cpu_seconds_total": {("a1",): 1.5},
        "greenroom_actor_memory_bytes": {("a1",): 3},
        "greenroom_actor_working_set_bytes": {("a1",): 2},
        "greenroom_actor_oom_kills_total": {("a1",): 1},
        "greenroom_actor_gpu_memory_bytes": {("a1",): 6},
    }
    assert scraped.value("greenroom_actor_memory_bytes", uid="a2") is None


async def test_unless_it_is_wanted_no_cgroup_is_read(monkeypatch):
    async with a_watched_stand() as watched:
        asked = using(watched, monkeypatch, a1=ActorUsage(measured=USED))
        await watched.stand.running("a1")
        assert "greenroom_actor_memory_bytes" not in (await watched.scrape()).families
    assert asked == []


async def test_cgroups_that_hang_hide_nothing_else(monkeypatch):
    async with a_watched_stand(metrics_per_actor=True) as watched:
        await watched.stand.running("a1")
        monkeypatch.setattr(watched.stand.worker.usages, "of_all", lambda _uids: anyio.sleep_forever())
        monkeypatch.setattr("supervisor.metrics.exposing.ACTORS_S", 0.01)
        scraped = await watched.scrape()
    assert scraped.value("greenroom_actor_states", state=State.RUNNING) == 1


# ---- what holds for all of them


async def a_rich_scrape(watched):
    """Something of every metric."""
    await watched.stand.running("a1")
    await watched.stand.refused("a1", spec__sandboxClass="other")
    counts = watched.metrics.counts
    actor = watched.stand.life("a1").actor
    counts.entered("a1", actor, actor, e.BackoffElapsed())
    counts.refused([a_problem()])
    counts.troubled("a1", a_problem(), 1)
    watched.stand.prepare["a2"] = lambda performer: performer.answers.update({c.CreateSandbox: failing()})
    await watched.stand.submit("a2")
    await watched.stand.until(State.FAILED, uid="a2")


async def test_every_metric_of_the_catalogue_is_told_under_its_name_and_no_other_is(monkeypatch):
    async with a_watched_stand(metrics_per_actor=True) as watched:
        using(watched, monkeypatch, a1=ActorUsage(measured=USED, gpu_memory_bytes=6))
        await a_rich_scrape(watched)
        scraped = await watched.scrape()
    told = {
        f"{name}_total" if family.type == "counter" else name: family.type for name, family in scraped.families.items()
    }
    assert told == {each.name: str(each.kind) for each in METRICS}
    for each in METRICS:
        family = scraped.families[each.name.removesuffix("_total") if each.kind is Kind.COUNTER else each.name]
        assert family.documentation == each.means
        assert family.samples, each.name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(each.label_names)


async def test_openmetrics_is_told_to_who_asks_for_it(monkeypatch):
    async with a_watched_stand(metrics_per_actor=True) as watched:
        using(watched, monkeypatch, a1=ActorUsage(measured=USED, gpu_memory_bytes=6))
        await a_rich_scrape(watched)
        families, content_type = await watched.scrape_openmetrics()
        text, plain = await watched.metrics.text("text/html, */*")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert plain.startswith("text/plain; version=0.0.4")
    assert text.endswith(b"\n")
    assert {each.name for each in families} == {
        each.name.removesuffix("_total") if each.kind is Kind.COUNTER else each.name for each in METRICS
    }


async def test_nothing_of_what_a_client_accepts_is_repeated():
    async with a_watched_stand() as watched:
        for accept in ("application/openmetrics-text; version=7.7.7-MARK", "text/plain; version=MARK; escaping=MARK"):
            text, content_type = await watched.metrics.text(accept)
            assert "MARK" not in content_type
            assert b"MARK" not in text


def test_names_and_units_follow_prometheus():
    assert len({each.name for each in METRICS}) == len(METRICS)
    for each in METRICS:
        assert each.name.startswith(("greenroom_", "process_")), each.name
        assert each.name.endswith("_total") == (each.kind is Kind.COUNTER), each.name
        assert each.means.endswith("."), each.name
        words = set(each.name.split("_"))
        assert not words & {"ms", "s", "seconds_count", "mib", "kib", "percent", "count", "number", "duration_s"}
        if each.kind is Kind.HISTOGRAM:
            assert each.unit == "seconds"
    assert {each.kind for each in HEARD} <= {Kind.COUNTER, Kind.HISTOGRAM}
    assert set(HEARD) | set(SEEN) | set(PER_ACTOR) == set(METRICS)
    assert {each.name for each in METRICS if "uid" in each.label_names} == {each.name for each in PER_ACTOR}


def test_buckets_fit_from_a_write_to_the_longest_step():
    assert BOUNDS_S[0] == 0.005
    assert BOUNDS_S[-1] == 300
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))


async def test_a_bucket_holds_what_took_at_most_so_long():
    async with a_watched_stand() as watched:
        for elapsed_s in (0.0, 0.005, 0.0051, 299.0, 301.0):
            watched.metrics.counts.judged(is_admitted=True, elapsed_s=elapsed_s)
        scraped = await watched.scrape()
    name = "greenroom_admission_duration_seconds"
    told = [scraped.value(f"{name}_bucket", outcome="admitted", le=le) for le in ("0.005", "0.01", "300.0", "+Inf")]
    assert told == [2, 3, 4, 5]
    assert scraped.value(f"{name}_sum", outcome="admitted") == pytest.approx(600.0101)


async def test_no_actor_is_named_and_the_number_of_series_does_not_grow_with_actors():
    async with a_watched_stand() as watched:
        await a_rich_scrape(watched)
        before = await watched.scrape()
        for number in range(20):
            await watched.stand.running(f"very-special-{number}")
        text, _ = await watched.metrics.text("")
        after = await watched.scrape()
    assert b"very-special" not in text
    assert after.samples.keys() == before.samples.keys()


async def test_a_disk_that_hangs_hides_nothing_else(monkeypatch):
    async with a_watched_stand() as watched:
        monkeypatch.setattr(watched.stand.files, "free_bytes", lambda _path: anyio.sleep_forever(), raising=False)
        monkeypatch.setattr("supervisor.metrics.exposing.DISK_S", 0.01)
        with anyio.fail_after(60):  # on a busy machine what does not hang may be late by itself
            while (scraped := await watched.scrape()).value("process_open_fds") is None:
                pass
    assert scraped.value("greenroom_state_free_bytes") is None


async def test_an_operation_that_is_refused_is_told_to_the_observer():
    async with a_watched_stand() as watched:

        async def refuse(_request):
            raise ProblemError(a_problem(Reason.ACTOR_NOT_FOUND))

        with pytest.raises(ProblemError):
            await running._telling_refusals(watched.metrics.counts, refuse)({})
        assert (await watched.scrape()).all("greenroom_refusals_total") == {(Reason.ACTOR_NOT_FOUND,): 1}
