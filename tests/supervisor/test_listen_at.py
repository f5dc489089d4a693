"""`--http-listen`: which texts are an address, and which are not."""

import click
import pytest

from actors.ports import TcpAddress
from supervisor.cli.worker_options import ListenAt

GOOD = {
    "0.0.0.0:8080": TcpAddress("0.0.0.0", 8080),
    "127.0.0.1:0": TcpAddress("127.0.0.1", 0),
    "[::]:8080": TcpAddress("::", 8080),
    "[fe80::0001]:65535": TcpAddress("fe80::1", 65535),
}
BAD = [
    "", ":", "8080", ":8080", "0.0.0.0", "0.0.0.0:", "localhost:8080", "0.0.0.0:65536", "0.0.0.0:-1", "0.0.0.0:+1",
    "0.0.0.0: 80", "0.0.0.0:8080 ", "0.0.0.0:٨", "0.0.0.0:000080", "[0.0.0.0]:80", ":::80", "::1:80", "[::]", "[::]80",
    "[::1:80", "::1]:80", "0.0.0.0:80:80", "1.2.3:80", "1.2.3.256:80", "http://0.0.0.0:80", "0.0.0.0:80/",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_a_number_and_a_port_are_an_address(text):
    address = ListenAt().convert(text, None, None)
    assert address == GOOD[text]
    assert ListenAt().convert(address, None, None) is address


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(click.BadParameter, match=r"0\.0\.0\.0:8080 or \[::\]:8080"):
        ListenAt().convert(text, None, None)
