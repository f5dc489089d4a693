"""Which flags a runsc's `checkpoint` takes: asked once, believed only as an answer."""

from pathlib import Path

import pytest

from actors.ports import DeadlineExceededError, Exit, Finished
from actors.runsc.checkpoint_flags import CUDA_FLAGS, CheckpointFlags, parse_flags
from tests.actors.scripted_processes import ScriptedProcesses

pytestmark = pytest.mark.anyio

OLD = b"""checkpoint [flags] <container id> - save current state of container.
  -compression value
    \tcompress checkpoint image on disk. Values: none|flate-best-speed. (default flate-best-speed)
  -image-path string
    \tdirectory path to saved container image
  -leave-running
    \trestart the container after checkpointing
"""
NEW = (
    OLD
    + b"""  -cuda-checkpoint-path string
    \tpath to the cuda-checkpoint binary in the container
  -cuda-checkpoint-sequential
    \trun cuda-checkpoint sequentially in the container
"""
)


def asked(*answers):
    """A runsc that gives one answer after the other."""
    left = list(answers)

    def answer(_verb, _argv):
        given = left.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    processes = ScriptedProcesses(answer=answer)
    return CheckpointFlags(processes, Path("/runsc")), processes


def said(text, code=0):
    return Finished(exit=Exit(code=code), stdout=text)


def test_flags_are_the_words_at_the_beginning_of_their_lines():
    assert parse_flags(OLD) == frozenset({"compression", "image-path", "leave-running"})
    assert parse_flags(NEW) == CUDA_FLAGS | {"compression", "image-path", "leave-running"}
    assert parse_flags(b"Subcommand checkpoint not understood\n") is None


async def test_it_is_asked_once():
    flags, processes = asked(said(NEW))
    assert await flags.known() == await flags.known()
    assert processes.argvs == [("/runsc", "help", "checkpoint")]


@pytest.mark.parametrize(
    "failure",
    [said(NEW, code=128), said(b""), OSError("no such program"), DeadlineExceededError("it hangs")],
    ids=["an error", "silence", "no program", "a hang"],
)
async def test_what_cannot_be_asked_is_not_known_and_asked_again(failure):
    flags, _ = asked(failure, said(NEW))
    assert await flags.known() is None
    assert await flags.known() == parse_flags(NEW)
