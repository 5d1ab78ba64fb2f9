"""Sockets: who can be reached, and what is said when an address cannot be had."""

from __future__ import annotations

import pytest

from apps.serve.host_names import is_loopback
from apps.serve.server import bind, url_of
from shared.errors import Ds4Error


def test_port_zero_takes_a_free_one() -> None:
    with bind("localhost", 0) as listener:
        assert url_of(listener) == f"http://{listener.getsockname()[0]}:{listener.getsockname()[1]}"
        assert listener.getsockname()[1] > 0


def test_a_taken_port_is_one_line() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Ds4Error, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 300, "1.2.3.4.5"])
def test_an_address_that_does_not_exist_is_one_line(host: str) -> None:
    with pytest.raises(Ds4Error, match="cannot listen on"):
        bind(host, 0)


def test_loopback() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.1.2.3", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.168.1.5", "example.org"]))
