"""What runsc says: read from its log, and turned into a reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.runsc.errors import Call, classify
from actors.runsc.log import parse_log, words
from statemachine.problem import Step
from statemachine.reasons import Reason
from statemachine.secrecy import secrets_of, without_secrets


def entry(message):
    return json.dumps(
        {"msg": message, "level": "error", "time": "2026-11-29T15:11:56Z"}, separators=(",", ":")
    ).encode()


def said(*messages):
    return words(b"".join(map(entry, messages)), b"")


def call(**changes):
    return Call(**{"step": Step.CREATE, "verb": "start", "subject": "web", **changes})


# -------------------------------------------------------------------------------------------------------------- the log


@given(st.lists(st.text().filter(lambda text: text.strip() and "\ngoroutine" not in text)))
def test_messages_that_follow_each_other_without_a_newline_are_all_found(messages):
    assert parse_log(b"".join(map(entry, messages))) == tuple(message.strip() for message in messages)


def test_a_panic_is_cut_where_its_goroutines_begin():
    panic = "checkpoint failed: runtime error: nil pointer\ngoroutine 1 [running]:\nmain.main()" + "\nframe" * 5000
    assert parse_log(entry(panic)) == ("checkpoint failed: runtime error: nil pointer",)


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (b"", ()),
        (b"\n \n", ()),
        (b"fatal error: out of memory", ("fatal error: out of memory",)),
        (entry("first") + b" panic: boom\ngoroutine 1", ("first", "panic: boom")),
        (b'{"msg":"cut in the mid', ("cut in the mid",)),
        (b'{"msg": 7}', ()),
        (b"[1]" + entry("x"), ("x",)),
        (b"\xff\xfe", ("\ufffd\ufffd",)),
    ],
)
def test_a_log_that_is_no_json_is_read_as_well_as_it_can_be(data, messages):
    assert parse_log(data) == messages


@given(st.binary())
def test_no_log_breaks_the_reader_or_its_bounds(data):
    found = words(data, data)
    assert len(found.message) <= 1000
    assert len(found.detail) <= 4000


def test_stderr_speaks_only_when_the_log_is_silent():
    assert words(b"", b"flag provided but not defined\n").message == "flag provided but not defined"
    assert words(entry("from the log"), b"from stderr").message == "from the log"


def test_what_is_kept_is_bounded_and_a_long_line_keeps_both_its_ends():
    found = said("starting sub-container [sh -c " + "x" * 5000 + "]: no space left on device", *["line"] * 100)
    assert len(found.message) <= 1000
    assert found.message.startswith("starting sub-container")
    assert found.message.endswith("no space left on device")
    assert len(found.detail) <= 4000
    assert len(found.detail.splitlines()) == 20


# -------------------------------------------------------------------------------------------------------------- reasons


@pytest.mark.parametrize(
    ("message", "reason", "says"),
    [
        (
            "starting container: starting sub-container [/nope x]: failed to load /nope: no such file or directory",
            Reason.COMMAND_NOT_FOUND,
            "container 'web' has no command '/nope'",
        ),
        (
            'starting sub-container [x]: error finding executable "nope" in PATH [/bin]: no such file or directory',
            Reason.COMMAND_NOT_FOUND,
            "container 'web' has no command 'nope'",
        ),
        ("creating process: failed to load /tmp: permission denied", Reason.RUNTIME_FAILED, "permission denied"),
        (
            "checkpoint failed: statefile error: write: no space left on device",
            Reason.INSUFFICIENT_DISK,
            "the disk is full",
        ),
        (
            "checkpoint failed: gofer fs: deleted and invalidated dentries cannot be saved",
            Reason.OPEN_DELETED_FILE,
            "held open",
        ),
        ("checkpoint failed: can't save with live nvproxy clients", Reason.LIVE_CUDA_CONTEXT, "a CUDA context is open"),
        (
            "checkpoint failed: nvproxy: object handle 0x1:0x2 (class 0x80, type *nvproxy.x) is not restorable",
            Reason.LIVE_CUDA_CONTEXT,
            "a CUDA context is open",
        ),
        (
            'connecting to control server at PID 12: connecting to "/r/runsc-c.sock": connection refused',
            Reason.SANDBOX_DIED,
            "does not answer",
        ),
        (
            "connecting to control server at PID 12: dial unix /r/runsc-c.sock: connect: no such file or directory",
            Reason.SANDBOX_DIED,
            "does not answer",
        ),
        (
            'starting sub-container [sh]: urpc method "containerManager.StartSubcontainer" failed: EOF',
            Reason.SANDBOX_DIED,
            "does not answer",
        ),
        ('loading container: file does not exist: "c1"', Reason.RUNTIME_FAILED, "file does not exist"),
        ("cannot read client sync file: waiting for sandbox to start: EOF", Reason.RUNTIME_FAILED, "sync file"),
        ("sandbox is not being restored, cannot restore subcontainer", Reason.RUNTIME_FAILED, "not being restored"),
        ("no space left on device: urpc method failed: EOF", Reason.INSUFFICIENT_DISK, "the disk is full"),
    ],
)
def test_words_that_were_seen_become_this_reason(message, reason, says):
    problem = classify(call(), said(message), status="exit code 128")
    assert problem.reason is reason
    assert problem.subject == "web"
    assert says in problem.message
    assert problem.detail == message


EOF = "creating container: cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF"
UNKNOWN = (
    "creating loader: registering filesystems: registering nvproxy driver: unsupported Nvidia driver version: 01.02.03"
)
MOUNT = 'error setting up FS: mounting {/x}: stat("/nonexist") failed: no such file or directory'


@pytest.mark.parametrize(("driver", "subject"), [("1.2.3", "driver 1.2.3"), (None, "driver 01.02.03")])
def test_a_driver_that_the_sandbox_does_not_know_is_named(driver, subject):
    problem = classify(call(verb="create", nvidia_driver=driver), said(UNKNOWN, EOF), status="exit code 128")
    assert (problem.reason, problem.subject) == (Reason.DRIVER_UNSUPPORTED_BY_RUNTIME, subject)
    assert problem.message == f"{subject} is not supported by this runsc"
    assert problem.detail == f"{UNKNOWN}\n{EOF}"


def test_of_a_sandbox_that_ends_without_a_word_the_driver_is_mentioned_and_not_blamed():
    problem = classify(call(verb="create", nvidia_driver="550.90.07"), said(EOF), status="exit code 128")
    assert (problem.reason, problem.subject) == (Reason.RUNTIME_FAILED, "web")
    assert problem.message == "the sandbox ended while it started: cause not reported, driver 550.90.07"
    assert problem.detail == EOF


@pytest.mark.parametrize(("driver", "words_"), [("550.90.07", (MOUNT, EOF)), (None, (EOF,)), ("550.90.07", ("no",))])
def test_what_has_another_cause_or_no_driver_says_nothing_of_one(driver, words_):
    problem = classify(call(verb="create", nvidia_driver=driver), said(*words_), status="exit code 128")
    assert (problem.reason, problem.message) == (Reason.RUNTIME_FAILED, words_[0])
    assert "550" not in problem.message + problem.detail


def test_a_command_that_says_nothing_is_told_by_its_status():
    problem = classify(call(verb="events"), words(b"", b""), status="signal 9")
    assert problem.reason is Reason.RUNTIME_FAILED
    assert problem.message == "runsc events ended with signal 9 and said nothing"


def test_no_value_of_the_environment_is_repeated():
    secrets = secrets_of(["TOKEN=hunter2-hunter2", "PART=hunter2", "ON=1", "PATH=/bin:/usr/bin", "EMPTY="])
    assert secrets == ("hunter2-hunter2", "hunter2")
    problem = classify(call(secrets=secrets), said("bad hunter2-hunter2 in /bin:/usr/bin", "hunter2!"), status="")
    assert problem.message == "bad *** in /bin:/usr/bin"
    assert "hunter2" not in problem.detail
    assert "hunter2" not in repr(call(secrets=secrets))


@pytest.mark.parametrize("behind", [900, 3800])
def test_a_secret_that_would_be_cut_in_two_is_not_told_in_half(behind):
    secret = "hunter2" * 60
    message = "x" * 400 + secret + "y" * behind
    problem = classify(call(secrets=secrets_of([f"TOKEN={secret}"])), said(message), status="")
    assert "hunter2" not in problem.message + problem.detail


def test_a_missing_command_whose_name_is_secret_is_not_named():
    message = "failed to load /opt/secret: no such file or directory"
    problem = classify(call(secrets=("/opt/secret",)), said(message), status="")
    assert problem.reason is Reason.COMMAND_NOT_FOUND
    assert "secret" not in problem.message


@given(st.text("abc "), st.lists(st.text("abc", min_size=1)))
def test_a_text_without_secrets_has_none(text, values):
    secrets = secrets_of(f"NAME={value}" for value in values)
    assert not any(secret in without_secrets(text, secrets) for secret in secrets)
