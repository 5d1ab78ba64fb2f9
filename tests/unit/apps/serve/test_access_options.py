"""What the access options come to, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.serve.access_options import access_settings, access_warnings
from apps.serve.host_names import address, host_name, is_local_name
from apps.serve.settings import AccessSettings
from shared.errors import UsageError


def _settings(host: str = "127.0.0.1", **given: Any) -> AccessSettings:
    nothing: dict[str, Any] = {
        "keys": (), "key_file": None, "any_origin": False, "origins": (), "host_names": ()
    }  # fmt: skip
    return access_settings(host, **(nothing | given))


def test_keys_of_both_kinds_add_up(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("b\nc\n")
    assert _settings(keys=["a", "b"], key_file=path).keys == {b"a", b"b", b"c"}
    assert _settings().keys == frozenset()


def test_names_are_checked_where_only_this_machine_can_reach_the_server() -> None:
    assert _settings("127.0.0.1").host_names == frozenset()
    assert _settings("::1").host_names == frozenset()
    assert _settings("localhost", host_names=["Box.Local."]).host_names == {"box.local"}
    assert _settings("localhost", host_names=["a", "*"]).host_names is None
    assert _settings("0.0.0.0").host_names is None
    assert _settings("0.0.0.0", host_names=["box"]).host_names == {"box"}


def test_origins_are_as_browsers_send_them() -> None:
    given = ["https://Chat.example.org/", "http://localhost:3000", "app://x"]
    assert _settings(origins=given).origins == {
        "https://chat.example.org",
        "http://localhost:3000",
        "app://x",
    }


@pytest.mark.parametrize(
    "given",
    [
        {"any_origin": True, "origins": ["http://a"]},
        {"keys": ["two words"]},
        {"origins": ["*"]},
        {"origins": ["null"]},
        {"origins": ["chat.example.org"]},
        {"origins": ["http://a/path"]},
        {"origins": ["http://a b"]},
        {"host_names": ["http://a"]},
        {"host_names": ["a:80"]},
        {"host_names": ["a/b"]},
        {"host_names": [""]},
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^--(cors|api-key|cors-origin|allowed-host)\b"):
        _settings(**given)


def test_an_open_server_without_keys_and_a_readable_key_file_warn(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("k")
    path.chmod(0o644)
    with_keys = AccessSettings(keys=frozenset([b"k"]))
    assert access_warnings("127.0.0.1", AccessSettings(), None) == []
    assert access_warnings("0.0.0.0", with_keys, None) == []
    (alone,) = access_warnings("0.0.0.0", AccessSettings(), None)
    assert "0.0.0.0 can be reached by other machines and there are no API keys" in alone
    (readable,) = access_warnings("0.0.0.0", with_keys, path)
    assert f"chmod 600 {path}" in readable
    path.chmod(0o600)
    assert access_warnings("0.0.0.0", with_keys, path) == []


def test_names_in_headers() -> None:
    assert [host_name(text) for text in ("Box.Local.:80", "[::1]:8000", "127.0.0.1", "", ":80", "[::1")] == [
        "box.local", "::1", "127.0.0.1", "", "", ""
    ]  # fmt: skip
    assert is_local_name("localhost")
    assert is_local_name("x.localhost")
    assert not is_local_name("localhost.example.org")
    assert not is_local_name("notlocalhost")
    assert address("127.0.0.1") is not None
    assert address("127.0.0.1.example.org") is None
