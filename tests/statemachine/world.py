"""Random lives against a small model of the world: a set of things that are really there.

The model knows nothing of the table. It performs commands as the supervisor would (one step at a time, a cancelled
step may have made part of what it makes, what it would have said is dropped, a kept request is fed at once) and looks
whether what was made is undone, exactly once and in the right order, and whether each life comes to rest.
"""

from __future__ import annotations

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from statemachine import commands as c
from statemachine import events as e
from statemachine.actor import Actor, By, Claims, ContainerFate, Ending, OnDrain, Pending, Resource, Restart, Snapshot
from statemachine.commands import Command
from statemachine.machine import Transition, begin, step
from statemachine.problem import Problem, Step
from statemachine.reasons import Reason
from statemachine.states import FINAL, PASSING, RESTING, State

N_STEPS = 14
"""No way to rest has more steps than this, when each answers."""
NAMES = ("one", "two", "three")
WISHED = {Reason.COMPLETED, Reason.WORKER_DRAINING, Reason.SNAPSHOT_NOT_UPLOADED}

# What each step command makes, said here once more on purpose: the model does not trust the table's own list.
MAKES: dict[type, tuple[Resource, ...]] = {
    c.PartitionGpus: (Resource.GRANT,),
    c.InjectEdits: (Resource.BUNDLES,),
    c.CreateSandbox: (Resource.BUNDLES, Resource.SANDBOX),
    c.RestoreSandbox: (Resource.BUNDLES, Resource.SANDBOX),
    c.SaveSnapshot: (Resource.UNPROVEN_SNAPSHOT,),
}
ANSWERS: dict[type, e.Event] = {
    c.RecordAssignment: e.AssignmentRecorded(),
    c.DetectGpus: e.GpusDetected(),
    c.GenerateSpec: e.SpecGenerated(),
    c.PartitionGpus: e.GpusPartitioned(),
    c.InjectEdits: e.EditsInjected(),
    c.CreateSandbox: e.SandboxCreated(),
    c.RestoreSandbox: e.SandboxRestored(),
    c.VerifyContainers: e.ContainersVerified(),
    c.ReleaseSandbox: e.SandboxReleased(),
    c.Thaw: e.Thawed(),
    c.StopContainers: e.TornDown(),
    c.StartBackoff: e.BackoffElapsed(),
}
STEPS = (*ANSWERS, c.SaveSnapshot, c.RollBack)
CLEANUPS = (c.RollBack, c.StopContainers, c.ReleaseSandbox, c.Thaw)


@attrs.define
class World:
    """What is really there, and the one step that runs."""

    there: set[Resource] = attrs.Factory(set)
    running: Command | None = None
    dirty: bool = False
    """A cleanup failed in this life, so something may be left."""
    undone: int = 0
    made: int = 0

    def make(self, resource: Resource, *, may_stay: bool = False) -> None:
        assert may_stay or resource not in self.there, f"{resource} is made while one is there"
        self.made += resource not in self.there
        self.there.add(resource)

    def undo(self, resources: tuple[Resource, ...]) -> None:
        order = list(Resource)
        for resource in resources:
            newer = {other for other in self.there if order.index(other) > order.index(resource)}
            assert not newer, f"{resource} is undone before {newer}"
            self.undone += resource in self.there
            self.there.discard(resource)

    def finish(self, *, parts: int) -> None:
        """The running step ends; it has done the first `parts` of what it does."""
        command, self.running = self.running, None
        for resource in MAKES.get(type(command), ())[:parts]:
            # Bundles were written by InjectEdits already, when there are devices; the grant stays over a backoff.
            stays = resource is Resource.GRANT or (
                resource is Resource.BUNDLES and not isinstance(command, c.InjectEdits)
            )
            self.make(resource, may_stay=stays)
        self.undo(getattr(command, "undo", ())[:parts])


class Lives(RuleBasedStateMachine):
    """One uid through one or more lives."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = Actor(state=State.TERMINATED)
        self.world = World()
        self.snapshots = 0
        self.good: Snapshot | None = None
        self.told: list[Problem] = []
        self.draining = False
        self.lives = 0

    # ---- the supervisor, as far as the machine needs one

    def perform(self, transition: Transition) -> None:
        for command in transition.commands:
            if isinstance(command, c.CancelStep):
                assert self.world.running is not None, "CancelStep, but no step runs"
                self.world.dirty |= isinstance(self.world.running, CLEANUPS)
                self.world.finish(parts=self.parts)
            elif isinstance(command, STEPS):
                assert self.world.running is None, f"{command} is ordered while {self.world.running} runs"
                self.world.running = command

    def feed(self, event: e.Event, parts: int = 0) -> None:
        """Feed one event; `parts` says how far a step got that is cancelled because of it."""
        before, self.parts = self.actor, parts
        outcome = step(self.actor, event)
        if not isinstance(outcome, Transition):
            return
        self.judge(before, event, outcome)
        self.actor = outcome.actor
        self.perform(outcome)
        for command in outcome.commands:
            if isinstance(command, c.FollowPending):
                self.feed(self.follow(command.pending))
            elif isinstance(command, c.BeginAnew):
                assert not self.draining, "a drained worker begins a new life"
                self.live(attrs.evolve(self.actor, problem=None, lost_gpus=(), ending=Ending.FAILED, tries=0))

    def follow(self, pending: Pending) -> e.Event:
        assert not (self.draining and pending is Pending.RUN), "a drained worker follows a wish to run"
        events: dict[Pending, e.Event] = {
            Pending.RUN: e.Activate(source=self.actor.last_good),
            Pending.SUSPEND: e.SuspendRequested(),
            Pending.TERMINATE: e.StopRequested(),
            Pending.DRAIN_BY_SUSPEND: e.DrainRequested(on_drain=OnDrain.SUSPEND, problem=self.trouble("drain")),
            Pending.DRAIN_BY_STOP: e.DrainRequested(on_drain=OnDrain.STOP, problem=self.trouble("drain")),
        }
        return events[pending]

    def trouble(self, kind: str) -> Problem:
        reason = Reason.WORKER_DRAINING if kind == "drain" else Reason.RUNTIME_FAILED
        problem = Problem(step=Step.SUPERVISE, reason=reason, subject=kind, message=f"{kind} {len(self.told)}")
        self.told.append(problem)
        return problem

    def live(self, actor: Actor) -> None:
        self.lives += 1
        self.world = World()
        self.told = []
        first = begin(actor)
        self.actor = first.actor
        self.perform(first)

    def judge(self, before: Actor, event: e.Event, outcome: Transition) -> None:
        """What must hold of every single transition."""
        after = outcome.actor
        if isinstance(event, e.SnapshotProven):
            self.good = event.snapshot
        elif isinstance(event, e.SandboxRestored):
            self.good = before.origin
        elif isinstance(event, e.SnapshotUploaded):
            self.good = before.last_good and attrs.evolve(before.last_good, stored_uri=event.uri)
        elif after.last_good != before.last_good:
            assert isinstance(event, e.RolledBack)
            assert after.state is State.SUSPENDED
            self.good = before.origin
        assert after.last_good == self.good, "the last good snapshot is lost"
        own = getattr(event, "problem", None)
        first = before.problem
        unwinding = {State.ROLLING_BACK, State.STOPPING}
        if first and first.reason not in WISHED and before.state in unwinding and after.state is not State.ASSIGNED:
            # On the way down the first cause stays; a GPU lost meanwhile forbids the next try, for a reason of its own.
            assert after.problem in {first, own if isinstance(event, e.GpuLost) else first}

    # ---- rules

    @initialize(
        claims=st.sampled_from(Claims),
        restart=st.sampled_from(Restart),
        count=st.integers(1, 3),
        restored=st.booleans(),
        asleep=st.booleans(),
        lead=st.integers(0, 10),
    )
    def born(self, *, claims: Claims, restart: Restart, count: int, restored: bool, asleep: bool, lead: int) -> None:
        snapshot = Snapshot(id="given", uri="file:///given", created_at=0.0) if restored else None
        self.good = snapshot
        self.live(
            Actor(
                state=State.ASSIGNED,
                claims=claims,
                restart=restart,
                containers=tuple(ContainerFate(name=name) for name in NAMES[:count]),
                origin=snapshot,
                last_good=snapshot,
                pending=Pending.SUSPEND if asleep and restored else None,
            )
        )
        self.steps_succeed(lead)

    @precondition(lambda self: self.actor.state is State.TERMINATED and not self.draining)
    @rule(lead=st.integers(0, 10))
    def is_submitted_again(self, lead: int) -> None:
        fates = tuple(ContainerFate(name=fate.name) for fate in self.actor.containers)
        fresh = Actor(state=State.ASSIGNED, claims=self.actor.claims, restart=self.actor.restart, containers=fates)
        self.live(attrs.evolve(fresh, last_good=self.good))
        self.steps_succeed(lead)

    @rule(by=st.sampled_from(By), where=st.sampled_from(["cold", "last", "given"]), parts=st.integers(0, 4))
    def activate(self, by: By, where: str, parts: int) -> None:
        if self.draining:  # admission refuses it
            return
        given = Snapshot(id="given", uri="file:///given", created_at=0.0)
        source = {"cold": None, "last": self.actor.last_good, "given": given}[where]
        self.feed(e.Activate(source=source, by=by), parts)

    @rule(by=st.sampled_from(By), parts=st.integers(0, 4))
    def suspend(self, by: By, parts: int) -> None:
        if self.draining and by is By.DOCUMENT:  # admission refuses it
            return
        self.feed(e.SuspendRequested(by=by), parts)

    @rule(by=st.sampled_from(By), parts=st.integers(0, 4))
    def stop(self, by: By, parts: int) -> None:
        self.feed(e.StopRequested(by=by), parts)

    @rule(on=st.sampled_from(OnDrain), parts=st.integers(0, 4), now=st.integers(0, 3))
    def drain(self, on: OnDrain, parts: int, now: int) -> None:
        if now == 0:  # seldom, because nothing starts after it
            self.draining = True
            self.feed(e.DrainRequested(on_drain=on, problem=self.trouble("drain")), parts)

    def answer(self, verdict: e.OriginVerdict = e.OriginVerdict.GOOD) -> None:
        command = self.world.running
        assert command is not None, f"{self.actor.state} passes, but no step runs"
        self.world.finish(parts=9)
        if isinstance(command, c.SaveSnapshot):
            self.world.there.discard(Resource.UNPROVEN_SNAPSHOT)  # it is proven now
            self.world.undone += 1
            self.snapshots += 1
            ended = tuple((fate.name, fate.exit_code) for fate in self.actor.containers if fate.exit_code is not None)
            snapshot = Snapshot(id=f"{self.snapshots}", uri="file:///x", created_at=1.0, exited=ended)
            self.feed(e.SnapshotProven(snapshot=snapshot))
        elif isinstance(command, c.RollBack):
            self.feed(e.RolledBack(origin=verdict if self.actor.origin else e.OriginVerdict.NONE))
        else:
            self.feed(ANSWERS[type(command)])

    @precondition(lambda self: self.world.running is not None)
    @rule(verdict=st.sampled_from([e.OriginVerdict.GOOD, e.OriginVerdict.DAMAGED]))
    def step_succeeds(self, verdict: e.OriginVerdict) -> None:
        self.answer(verdict)

    def steps_succeed(self, count: int) -> None:
        for _ in range(count):
            if self.world.running is not None:
                self.answer()
            elif self.actor.state in {State.SUSPENDED, State.FAILED} and not self.draining:
                self.feed(e.Activate(source=self.good))

    @rule(count=st.integers(1, 9))
    def a_while_all_goes_well(self, count: int) -> None:
        """So that lives get somewhere."""
        self.steps_succeed(count)

    @precondition(lambda self: self.actor.state is State.RUNNING)
    @rule(codes=st.lists(st.sampled_from([0, 0, 1]), min_size=3, max_size=3), count=st.integers(0, 2))
    def all_containers_exit(self, codes: list[int], count: int) -> None:
        for name, code in zip(self.actor.live, codes, strict=False):
            self.feed(e.ContainerExited(container=name, exit_code=code))
        self.steps_succeed(count)

    @precondition(lambda self: self.actor.state is State.RUNNING)
    @rule(by=st.sampled_from(By), refused=st.booleans())
    def is_suspended_and_perhaps_thawed(self, by: By, refused: bool) -> None:
        self.feed(e.SuspendRequested(by=by))
        if refused:
            self.step_refuses()

    @precondition(lambda self: self.world.running is not None)
    @rule(parts=st.integers(0, 4), fate=st.sampled_from(e.SandboxFate))
    def step_fails(self, parts: int, fate: e.SandboxFate) -> None:
        command = self.world.running
        self.world.dirty |= isinstance(command, CLEANUPS)
        self.world.finish(parts=parts)
        self.feed(e.StepFailed(problem=self.trouble("failure"), sandbox=fate))

    @precondition(
        lambda self: (
            isinstance(self.world.running, c.RestoreSandbox | c.SaveSnapshot)
            or (isinstance(self.world.running, c.InjectEdits) and self.actor.origin is not None)
        )
    )
    @rule()
    def step_refuses(self) -> None:
        kind = e.SuspendRefused if isinstance(self.world.running, c.SaveSnapshot) else e.RestoreRefused
        self.world.finish(parts=0)
        self.feed(kind(problem=self.trouble("refusal")))

    @precondition(lambda self: self.world.running is not None)
    @rule(parts=st.integers(0, 4))
    def step_hangs(self, parts: int) -> None:
        self.feed(e.DeadlineExceeded(problem=self.trouble("deadline")), parts)

    @precondition(lambda self: Resource.SANDBOX in self.world.there)
    @rule(name=st.sampled_from([*NAMES, "stranger"]), code=st.sampled_from([0, 0, 1, 137]), parts=st.integers(0, 4))
    def container_exits(self, name: str, code: int, parts: int) -> None:
        if self.actor.state is State.SUSPENDING and self.actor.live == (name,):
            return  # the step would refuse to save an actor of which nothing lives
        self.feed(e.ContainerExited(container=name, exit_code=code), parts)

    @precondition(lambda self: Resource.SANDBOX in self.world.there)
    @rule(parts=st.integers(0, 4))
    def sandbox_dies(self, parts: int) -> None:
        self.feed(e.SandboxDied(problem=self.trouble("death")), parts)

    @precondition(lambda self: self.actor.last_good is not None and self.actor.state is not State.TERMINATED)
    @rule(well=st.booleans(), parts=st.integers(0, 4))
    def upload_ends(self, well: bool, parts: int) -> None:
        snapshot = self.actor.last_good
        assert snapshot is not None
        if well:
            self.feed(e.SnapshotUploaded(snapshot=snapshot.id, uri=f"s3://bucket/{snapshot.id}"), parts)
            return
        problem = Problem(step=Step.SUPERVISE, reason=Reason.SNAPSHOT_NOT_UPLOADED, subject="store", message="no store")
        self.feed(e.UploadFailed(snapshot=snapshot.id, problem=problem), parts)

    @precondition(lambda self: self.actor.held or self.actor.state is State.ASSIGNED)
    @rule(gpu=st.sampled_from(["GPU-0", "GPU-1"]), parts=st.integers(0, 4))
    def gpu_is_lost(self, gpu: str, parts: int) -> None:
        self.feed(e.GpuLost(gpu=gpu, problem=self.trouble("gpu")), parts)

    @rule(finding=st.sampled_from(e.Finding), parts=st.integers(0, 4), now=st.integers(0, 3))
    def supervisor_restarts(self, finding: e.Finding, parts: int, now: int) -> None:
        if now:
            return
        if self.world.running is not None:  # it died with the process, somewhere on its way
            self.world.finish(parts=parts)
        self.draining = False
        self.feed(e.Recovered(finding=finding, problem=self.trouble("restart")))

    @precondition(lambda self: self.actor.held and self.actor.state in {State.SUSPENDED, State.FAILED})
    @rule(parts=st.integers(0, 4))
    def cleanup_is_due(self, parts: int) -> None:
        self.feed(e.CleanupDue(), parts)

    # ---- what must hold at all times

    @invariant()
    def a_step_runs_exactly_while_the_state_passes(self) -> None:
        assert (self.world.running is not None) == (self.actor.state in PASSING)

    @invariant()
    def nothing_is_there_that_is_not_held(self) -> None:
        assert self.world.there <= set(self.actor.held)

    @invariant()
    def at_rest_nothing_is_there_but_what_runs(self) -> None:
        actor, there = self.actor, self.world.there
        if actor.state is State.RUNNING:
            grant = {Resource.GRANT} if actor.claims is Claims.GPUS else set[Resource]()
            assert there == set(actor.held) == {Resource.BUNDLES, Resource.SANDBOX} | grant
            assert actor.live
        elif (actor.state in RESTING and not self.world.dirty) or actor.state in FINAL:
            assert there == set(actor.held) == set()
            assert self.world.made == self.world.undone

    @invariant()
    def a_running_actor_has_no_problem_unless_it_was_thawed(self) -> None:
        troubles = {problem for problem in self.told if problem.subject != "drain"}
        if self.actor.state is State.RUNNING and not troubles:
            assert self.actor.problem is None
        if self.actor.state is State.FAILED:
            assert self.actor.problem is not None

    @invariant()
    def a_drained_worker_does_not_rest_with_a_running_actor(self) -> None:
        if self.draining:
            assert self.actor.state is not State.RUNNING

    def teardown(self) -> None:
        """A fair schedule from here on: every step answers, so the life comes to rest."""
        for _ in range(N_STEPS):
            if self.actor.state not in PASSING:
                break
            self.answer()
            self.at_rest_nothing_is_there_but_what_runs()
        assert self.actor.state not in PASSING, f"still {self.actor.state} after {N_STEPS} answers"


INVARIANTS = (
    Lives.a_step_runs_exactly_while_the_state_passes,
    Lives.nothing_is_there_that_is_not_held,
    Lives.at_rest_nothing_is_there_but_what_runs,
    Lives.a_running_actor_has_no_problem_unless_it_was_thawed,
    Lives.a_drained_worker_does_not_rest_with_a_running_actor,
)
