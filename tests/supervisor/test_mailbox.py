"""The mailbox of a life: nothing that was put in is lost, whoever is cancelled, and nobody waits at a closed one."""

import anyio
import pytest

from statemachine.events import AssignmentRecorded
from supervisor.mailbox import QUEUE_SIZE, ClosedMailboxError, Letter, Mailbox

pytestmark = pytest.mark.anyio


def letter():
    return Letter(AssignmentRecorded())


async def test_letters_come_in_the_order_in_which_they_were_put():
    mailbox, letters = Mailbox(), [letter() for _ in range(3)]
    for each in letters:
        await mailbox.put(each)
    assert [await mailbox.take() for _ in letters] == letters
    assert mailbox.is_empty


async def test_who_takes_waits_for_the_next():
    mailbox, sent, taken = Mailbox(), letter(), []

    async def take():
        taken.append(await mailbox.take())

    async with anyio.create_task_group() as group:
        group.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert taken == []
        await mailbox.put(sent)
    assert taken == [sent]


async def test_a_full_one_lets_who_puts_wait_for_room():
    mailbox, last = Mailbox(), letter()
    for _ in range(QUEUE_SIZE):
        await mailbox.put(letter())
    with anyio.move_on_after(0) as patience:
        await mailbox.put(letter())
    assert patience.cancelled_caught
    async with anyio.create_task_group() as group:
        group.start_soon(mailbox.put, last)
        await anyio.wait_all_tasks_blocked()
        taken = [await mailbox.take()]
    taken += [await mailbox.take() for _ in range(QUEUE_SIZE)]
    assert taken[-1] is last
    assert mailbox.is_empty


async def test_who_is_cancelled_takes_nothing_along():
    mailbox, sent = Mailbox(), letter()
    with anyio.CancelScope() as scope:
        await mailbox.put(sent)
        scope.cancel()
        await mailbox.take()
    assert scope.cancelled_caught
    assert await mailbox.take() is sent


async def test_a_closed_one_answers_all_who_wait_and_takes_no_more():
    mailbox, waiting = Mailbox(), letter()
    await mailbox.put(waiting)
    mailbox.close()
    assert waiting.answered.is_set()
    with pytest.raises(ClosedMailboxError):
        await mailbox.put(letter())


async def test_who_waits_for_room_in_one_that_is_closed_is_told():
    mailbox = Mailbox()
    for _ in range(QUEUE_SIZE):
        await mailbox.put(letter())
    refused = []

    async def put():
        with pytest.raises(ClosedMailboxError) as error:
            await mailbox.put(letter())
        refused.append(error.type)

    async with anyio.create_task_group() as group:
        group.start_soon(put)
        await anyio.wait_all_tasks_blocked()
        mailbox.close()
    assert refused == [ClosedMailboxError]
