"""The module's `params` and device files (behaviour I17)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gpu.driver_params import PARAMS, lets_libraries_make_nodes, without_device_files
from sim.world.gpus import proc_files

ON, OFF = "ModifyDeviceFiles: 1", "ModifyDeviceFiles: 0"


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (f"{ON}\n", f"{OFF}\n"),
        (ON, f"{OFF}\n"),
        (f"DeviceFileUID: 0\n{ON}\nDeviceFileMode: 438\n", f"DeviceFileUID: 0\n{OFF}\nDeviceFileMode: 438\n"),
        (f"{ON}\n{ON}\n", f"{OFF}\n{OFF}\n"),
    ],
    ids=["alone", "without an end of line", "among others", "twice"],
)
def test_i17_what_lets_libraries_make_nodes_is_shown_with_that_switched_off(text, edited):
    assert without_device_files(text) == edited
    assert lets_libraries_make_nodes(text)


@pytest.mark.parametrize(
    "text",
    [
        f"{OFF}\n",
        "ModifyDeviceFiles: 11\n",
        "ModifyDeviceFiles: 10\n",
        f" {ON}\n",
        f"{ON} \n",
        f"\t{ON}\n",
        f"x\f{ON}\n",
        "ModifyDeviceFiles:1\n",
        "modifydevicefiles: 1\n",
        "XModifyDeviceFiles: 1\n",
        "DeviceFileMode: 438\n",
        f"{ON}\n{OFF}\n",
        f"{OFF}\n{ON}\n",
        "",
        None,
    ],
)
def test_i17_with_anything_else_nothing_is_done(text):
    assert without_device_files(text) is None
    assert not lets_libraries_make_nodes(text)


def test_the_simulated_driver_lets_libraries_make_nodes_as_the_real_one_does():
    assert lets_libraries_make_nodes(proc_files((), "580.65.06")["params"])
    assert PARAMS.endswith("/params")


LINES = st.lists(st.sampled_from([ON, OFF, f"{ON} ", "ModifyDeviceFiles: 2", "DeviceFileUID: 0", ""]), max_size=6)


@given(LINES.map("\n".join) | st.text())
def test_what_was_edited_needs_no_editing_and_says_nothing_else(text):
    edited = without_device_files(text)
    if edited is not None:
        assert without_device_files(edited) is None
        assert edited.replace(OFF, ON) == text.removesuffix("\n") + "\n"
