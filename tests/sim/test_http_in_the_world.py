"""The pages of health and metrics in the simulated world: asked at any moment of virtual time."""

import json
import signal

import attrs
import pytest
import trio

from actors.ports import TcpAddress
from sim.documents import counter
from sim.engine import run
from sim.faults import Fault, Hang, When
from sim.world.world import default_settings
from statemachine.problem import ProblemError
from statemachine.reasons import Reason
from statemachine.states import State
from tests.sim.pages import PORT, get

SETTINGS = attrs.evolve(default_settings(), http_listen=TcpAddress("0.0.0.0", PORT))


def reasons(body):
    return [each["reason"] for each in json.loads(body)["reasons"]]


def test_a_worker_is_ready_once_it_has_recovered_and_tells_what_it_does():
    async def life(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        for over_tcp in (False, True):
            assert await get(here, "/readyz", over_tcp=over_tcp) == (200, b'{"ready":true,"reasons":[]}\n')
            status, body = await get(here, "/metrics", over_tcp=over_tcp)
            assert status == 200
            assert b'\ngreenroom_actor_states{state="Running"} 1.0\n' in body

    run(life, settings=SETTINGS)


def test_a_signal_makes_it_not_ready_while_its_actor_still_runs_and_it_answers_until_it_is_gone():
    async def life(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        here.worker.signal(signal.SIGTERM)
        status, body = await get(here, "/readyz")
        assert (status, reasons(body)) == (503, ["WorkerDraining"])
        assert (await get(here, "/healthz"))[0] == 200
        await here.worker.ended.wait()
        with pytest.raises(ConnectionRefusedError):
            await here.world.client.connect_tcp(PORT)
        with pytest.raises(FileNotFoundError):
            await here.world.client.connect_unix(here.world.settings.http_socket)

    run(life, settings=SETTINGS)


def test_while_it_takes_over_what_an_earlier_life_left_it_is_alive_and_not_ready():
    async def life(here):
        await here.submit(counter())
        await here.wait(State.RUNNING)
        here.plant(Fault(id="f", when=When(method="run", argument=" list"), what=Hang(for_s=5)))
        here.kill()
        with pytest.raises(ConnectionRefusedError):
            await here.world.client.connect_tcp(PORT)
        here.world.start()
        await trio.sleep(2)
        assert (await get(here, "/healthz"))[0] == 200
        status, body = await get(here, "/readyz", over_tcp=True)
        assert (status, reasons(body)) == (503, ["WorkerStarting"])
        assert b"\ngreenroom_ready 0.0\n" in (await get(here, "/metrics"))[1]
        await trio.sleep(10)
        assert (await get(here, "/readyz"))[0] == 200
        assert here.state() == State.RUNNING

    run(life, settings=SETTINGS)


def test_a_start_at_a_port_that_is_taken_fails_with_a_reason_and_leaves_no_socket():
    async def life(here):
        here.kill()
        async with here.world.client.listen_tcp(TcpAddress("0.0.0.0", PORT)):
            worker = here.world.start()
            await worker.ended.wait()
        assert isinstance(worker.error, ProblemError)
        assert worker.error.problem.reason is Reason.ADDRESS_UNAVAILABLE
        # What a worker that was killed has left is still there, as it is.
        assert list(here.world.files_below(here.world.settings.run_dir)) == ["control.sock"]

    run(life, settings=SETTINGS)
