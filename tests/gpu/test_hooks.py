import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cdi import Hook
from actors.gpu.hooks import CudaCompat, HookPlan, LinkRequest, Skipped, is_emulated, plan_hooks


def hook(*args, path="/usr/bin/nvidia-cdi-hook", stage="createContainer", env=()):
    return Hook(hook_name=stage, path=path, args=args, env=env)


def cdi_hook(*args):
    return hook("nvidia-cdi-hook", *args)


def ctk_hook(*args):
    return hook("nvidia-ctk", "hook", *args, path="/usr/bin/nvidia-ctk")


LINK = LinkRequest("libcuda.so.1", "/usr/lib64/libcuda.so")


@pytest.mark.parametrize("spelled", [cdi_hook, ctk_hook])
@pytest.mark.parametrize(
    "args", [("--link", "libcuda.so.1::/usr/lib64/libcuda.so"), ("--link=libcuda.so.1::/usr/lib64/libcuda.so",)]
)
def test_links_are_read_in_every_spelling(spelled, args):
    assert plan_hooks([spelled("create-symlinks", *args)]) == HookPlan(links=(LINK,))


def test_links_keep_their_order_and_come_once():
    one = cdi_hook("create-symlinks", "--link", "a::/l/b", "--link", "c::/l/d", "--link", "a::/l/b")
    two = cdi_hook("create-symlinks", "--link", "c::/l/d", "--link", "e::/l/f")
    links = plan_hooks([one, two, one]).links
    assert links == (LinkRequest("a", "/l/b"), LinkRequest("c", "/l/d"), LinkRequest("e", "/l/f"))


@pytest.mark.parametrize(
    "value",
    ["", "a", "a:/b", "a::/b::/c", "::/b", "a::", "a::b", "a::../b", "a::/b/../../c", "a\n::/b", "a::/b\0", "a::/\x1b"],
)
def test_what_is_no_link_is_skipped_and_the_good_ones_stay(value):
    plan = plan_hooks([cdi_hook("create-symlinks", "--link", value, "--link", "libcuda.so.1::/usr/lib64/libcuda.so")])
    assert plan.links == (LINK,)
    ((name, why),) = [(each.name, each.why) for each in plan.skipped]
    assert name == "create-symlinks"
    assert "link" in why
    assert why.isprintable()


@pytest.mark.parametrize("args", [("--link",), ("--unknown", "x"), ("stray",)])
def test_an_option_that_is_not_understood_is_skipped(args):
    plan = plan_hooks([cdi_hook("create-symlinks", *args)])
    assert plan.links == ()
    assert len(plan.skipped) == 1


@pytest.mark.parametrize("spelled", [cdi_hook, ctk_hook])
def test_the_hosts_driver_is_read_from_the_compatibility_hook(spelled):
    plan = plan_hooks([spelled("enable-cuda-compat", "--host-driver-version=580.65.06", "--host-cuda-version=13.0")])
    assert plan == HookPlan(cuda_compat=CudaCompat(host_driver="580.65.06"))


def test_the_images_folder_may_be_another():
    args = ("--host-driver-version", "580.65.06", "--cuda-compat-container-root", "/opt/compat")
    assert plan_hooks([cdi_hook("enable-cuda-compat", *args)]).cuda_compat == CudaCompat(
        host_driver="580.65.06", folder="/opt/compat"
    )


@pytest.mark.parametrize("folder", ["compat", "/a/../b", "/a:/b", "/a\0"])
def test_a_folder_that_would_be_another_in_the_library_path_is_skipped(folder):
    plan = plan_hooks([cdi_hook("enable-cuda-compat", f"--cuda-compat-container-root={folder}")])
    assert plan.cuda_compat is None
    assert len(plan.skipped) == 1


@pytest.mark.parametrize(
    ("host", "names", "found"),
    [
        ("570.133.20", ["libcuda.so.580.65.06", "libcuda.so.1", "libcuda.so"], "/usr/local/cuda/compat"),
        ("580.65.06", ["libcuda.so.580.95.05"], None),
        ("580.65.06", ["libcuda.so.570.133.20"], None),
        ("570.133.20", [], None),
        ("570.133.20", ["libcuda.so.1"], None),
        ("570.133.20", ["libcuda.so.580.65.06", "libcuda.so.590.1"], None),
        ("570.133.20", ["libcuda.so.580.65.06", "libcuda.so.580.65.06"], "/usr/local/cuda/compat"),
        ("99.1", ["libcuda.so.100.1"], "/usr/local/cuda/compat"),
        ("", ["libcuda.so.580.65.06"], None),
        ("new", ["libcuda.so.580.65.06"], None),
    ],
)
def test_the_images_libcuda_goes_first_when_it_is_the_only_one_and_of_a_higher_major(host, names, found):
    assert CudaCompat(host_driver=host).folder_for(names) == found


@pytest.mark.parametrize(
    ("odd", "name"),
    [
        (cdi_hook("update-ldcache", "--folder", "/usr/lib64"), "update-ldcache"),
        (ctk_hook("chmod", "--mode", "755"), "chmod"),
        (cdi_hook("disable-device-node-modification"), "disable-device-node-modification"),
        (cdi_hook("brand-new-hook"), "brand-new-hook"),
        (hook("create-symlinks", path="/usr/bin/create-symlinks"), "/usr/bin/create-symlinks"),
        (hook("create-symlinks", path="create-symlinks"), "create-symlinks without a command"),
        (hook(path="/opt/x/anything"), "/opt/x/anything"),
        (hook("x", "create-symlinks", stage="prestart"), "create-symlinks"),
        (cdi_hook("a\nb" * 999), "a\\nb"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_other_hook_is_skipped_with_its_name_and_a_reason(odd, name):
    plan = plan_hooks([odd])
    assert (plan.links, plan.cuda_compat) == ((), None)
    (skipped,) = plan.skipped
    assert skipped.name.startswith(name)
    assert skipped.why
    assert skipped.name.isprintable()
    assert not is_emulated(odd)


def test_the_same_hook_twice_is_skipped_once():
    assert plan_hooks([cdi_hook("new"), cdi_hook("new"), hook("x", "new", env=("A=b",))]).skipped == (
        Skipped(name="new", why="only create-symlinks and enable-cuda-compat are known"),
    )


WORDS = st.sampled_from(
    [
        "nvidia-cdi-hook",
        "nvidia-ctk",
        "hook",
        "create-symlinks",
        "enable-cuda-compat",
        "--link",
        "--link=a::/b",
        "a::/b",
    ]
) | st.text(max_size=12)


@given(st.lists(st.lists(WORDS, max_size=6), max_size=4))
def test_any_arguments_make_a_plan_whose_links_stay_in_the_container(hooks):
    plan = plan_hooks([hook(*args) for args in hooks])
    for link in plan.links:
        assert link.path.startswith("/")
        assert ".." not in link.path.split("/")
        assert link.target.isprintable()
