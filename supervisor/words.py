"""The words of the worker's log, of its status and of the journal's lines: one list, so that one thing has one name.

In the log a word of several parts is written `desired_state`, in JSON `desiredState`. What a line of the journal or a
status object holds below these is named by the machine's own classes. A test holds all three against this list.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # whom it is about
        "actor": "uid of the actor",
        "actors": "the actors of the worker",
        "activation": "name of one life of a sandbox",
        "containers": "the application containers of an actor",
        "exitCode": "of a container that has ended",
        "file": "name of a file that we were given, or path of one of ours",
        "generation": "of the assignment",
        "leftOut": "files of durable volumes that no archive holds",
        "gpus": "the inventory, or what a container was granted",
        "gpu": "UUID of a GPU",
        "holder": "who was granted a GPU",
        "id": "name of a snapshot",
        "name": "of an actor, a container",
        "namespace": "of an actor",
        "snapshot": "name of a snapshot",
        "uid": "of an actor",
        "worker": "the worker itself",
        # where it is and where it goes
        "command": "what the machine ordered",
        "commands": "what the machine ordered, in order",
        "desiredState": "what the assignment wants",
        "effect": "what an admitted document did",
        "event": "what happened to an actor",
        "eventType": "the kind of what happened to an actor",
        "from": "state before",
        "mark": "how far a step has come",
        "progress": "step and mark",
        "ready": "whether the worker takes on work",
        "since": "when it came to its state",
        "state": "where it is",
        "step": "which step, or that one has ended",
        "to": "state after",
        # what was wrong
        "cause": "why a GPU is of no use",
        "detail": "the last lines of a tool",
        "error": "why an actor is not what was wanted",
        "hint": "what to do about a problem",
        "keptAs": "where a file was set aside",
        "left": "actors that a drain left behind",
        "notUploaded": "actors whose snapshots have not reached their store",
        "message": "one sentence about a problem",
        "problems": "why documents were refused",
        "reason": "stable word for a problem",
        "forced": "whether a restore was wanted whatever differs from the snapshot",
        "here": "what a thing is here that was another in the snapshot",
        "subject": "the thing that a problem is about",
        "was": "what a thing was in the snapshot",
        "warning": "one sentence about what is not as it should be",
        "why": "why nothing happens, on purpose, or why something was given up",
        "xid": "number of an error that the driver reported",
        # the rest of a status and of a journal line
        "at": "when, in UTC",
        "base": "the machine's whole memory",
        "bootId": "of the kernel",
        "createdAt": "when a snapshot was made",
        "directory": "path of a directory",
        "driver": "version of the GPUs' driver",
        "held": "what is left to be undone",
        "identity": "of a CDI spec",
        "in_s": "how long until it is tried again",
        "lastGoodSnapshot": "the newest that is known to be whole",
        "mono_s": "seconds of the supervisor's clock",
        "network": "gVisor's",
        "nvproxy": "whether gVisor's GPU support is on",
        "path": "of an executable",
        "pid": "of a process",
        "platform": "gVisor's",
        "program": "path of an executable that was called",
        "runsc": "the runtime",
        "seq": "number of a line",
        "toolkit": "version of the NVIDIA container toolkit",
        "storedUri": "where a snapshot is in a store outside the worker",
        "uri": "where a snapshot is",
        "v": "format version",
        "version": "of the runtime",
        # a start and an end
        "assignments": "the watched directory",
        "controlSocket": "where clients and worker meet",
        "drainTimeout_s": "how long a shutdown may take",
        "elapsed_s": "how long something took",
        "processes": "how many processes were ended",
        "runscVersion": "of the runtime",
        "signal": "that asked for the end",
        "stateDir": "what outlives the process",
    }
)
