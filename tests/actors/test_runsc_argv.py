"""The command lines of runsc, word for word."""

from pathlib import Path

import pytest

from actors.runsc import argv
from actors.runsc.flags import GlobalFlags, root_argument

B, IMAGE, P = Path("/b"), Path("/i"), Path("/p")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (argv.create("c1", bundle=B, pid_file=P), "create --bundle=/b --pid-file=/p c1"),
        (argv.start("c1"), "start c1"),
        (
            argv.restore("c1", bundle=B, image=IMAGE, pid_file=P),
            "restore --bundle=/b --image-path=/i --pid-file=/p --detach c1",
        ),
        (argv.checkpoint("c1", image=IMAGE), "checkpoint --image-path=/i --compression=none --leave-running c1"),
        (argv.pause("c1"), "pause c1"),
        (argv.resume("c1"), "resume c1"),
        (argv.state("c1"), "state c1"),
        (argv.list_containers(), "list --format=json"),
        (argv.wait("c1"), "wait c1"),
        (argv.kill("c1", "TERM"), "kill c1 TERM"),
        (argv.delete("c1"), "delete c1"),
        (argv.kill_process("c1", 5), "kill --pid=5 c1 KILL"),
        (argv.execute("c1", ["ls", "-l"], pid_file=P), "exec --internal-pid-file=/p c1 ls -l"),
        (argv.execute("c1", ["ls"], pid_file=P, user="1:2"), "exec --internal-pid-file=/p --user=1:2 c1 ls"),
        (argv.execute("c1", ["sh"], pid_file=P, term="vt100"), "exec --internal-pid-file=/p --env=TERM=vt100 c1 sh"),
        (argv.list_supported_drivers(), "nvproxy list-supported-drivers"),
        (argv.ps("c1"), "ps --format=table c1"),
        (argv.version(), "--version"),
    ],
)
def test_each_command_is_called_by_these_words(words, line):
    assert list(words) == line.split()


def test_a_checkpoint_always_leaves_the_actor_running():
    assert "--leave-running" in argv.checkpoint("c1", image=IMAGE)


@pytest.mark.parametrize(
    ("command", "files"), [("ls", ["/a/ls", "/b/ls"]), ("./ls", ["./ls"]), ("/x/ls", ["/x/ls"]), ("", ["/a/", "/b/"])]
)
def test_a_confined_command_comes_by_way_of_stdin_with_the_files_it_may_be(command, files):
    words = argv.execute_confined("c1", [command, "-l"], path=["/a", "/b"], pid_file=P, user="1:2")
    head = ("exec", "--exec-fd=0", "--internal-pid-file=/p", "--user=1:2", "c1", "confine")
    assert words == (*head, *files, "", command, "-l")


def test_nothing_is_ever_deleted_by_force():
    assert not any("force" in word for word in argv.delete("c1"))


def test_the_global_flags_come_in_one_order_and_name_the_root_in_one_word():
    flags = GlobalFlags(extra=("--nvproxy",))
    assert list(flags.as_argv(root=Path("/s/a/runsc"), log=Path("/s/a/1.log"))) == [
        "--root=/s/a/runsc",
        "--log=/s/a/1.log",
        "--platform=systrap",
        "--network=none",
        "--overlay2=root:memory",
        "--net-disconnect-ok=true",
        "--ignore-cgroups=true",
        "--nvproxy",
    ]
    assert root_argument(Path("/s/a/runsc")) == "--root=/s/a/runsc"


def test_flags_read_back_from_their_record():
    flags = GlobalFlags(platform="ptrace", network="sandbox", net_disconnect_ok=False, extra=("--nvproxy", "--x=1"))
    assert GlobalFlags.from_json(flags.as_json()) == flags


def test_what_the_root_is_annotated_with_is_recorded_like_a_flag_and_is_none():
    annotated = GlobalFlags(extra=("--x=1",)).more(extra=("--y=2",), annotations=("dev.example.z=3",))
    argv_ = annotated.as_argv(root=Path("/r"), log=Path("/l"))
    assert argv_[-2:] == ("--x=1", "--y=2")
    assert annotated.as_list()[-3:] == ("--x=1", "--y=2", "dev.example.z=3")
    assert GlobalFlags.from_json(annotated.as_json()) == annotated
    assert "annotations" not in GlobalFlags().as_json()
    for word in ("--z=3", "dev.example.z"):
        with pytest.raises(ValueError, match="an annotation is"):
            GlobalFlags(annotations=(word,))
    with pytest.raises(TypeError):
        GlobalFlags.from_json({**GlobalFlags().as_json(), "annotations": "x=1"})


@pytest.mark.parametrize("change", [{"platform": 1}, {"ignoreCgroups": "yes"}, {"extra": "--x"}, {"extra": ["state"]}])
def test_flags_of_another_form_are_refused(change):
    with pytest.raises((TypeError, ValueError)):
        GlobalFlags.from_json({**GlobalFlags().as_json(), **change})


def test_an_extra_word_that_would_be_taken_for_the_command_is_refused():
    with pytest.raises(ValueError, match="two dashes"):
        GlobalFlags(extra=("delete",))
