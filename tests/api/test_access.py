"""Who is let in: keys, names of the server, origins of pages; and what is said to who is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from apps.serve.settings import AccessSettings, ServerSettings
from tests.support.api_server import QUICK, RunningServer, serve_script

_SCRIPT: dict[str, Any] = {"turns": [{"pieces": ["ok"]}]}
_CHAT = "/v1/chat/completions"
_BODY = {"model": "deepseek-chat", "messages": [{"role": "user", "content": "hello"}]}
_KEYS = AccessSettings(keys=frozenset([b"first-key", b"second-key"]))
_NAMED = AccessSettings(host_names=frozenset(["box.lan"]), origins=frozenset(["https://chat.example"]))


@pytest.fixture(name="locked", scope="module")
def _locked() -> Iterator[RunningServer]:
    with serve_script(_SCRIPT, settings=ServerSettings(access=_KEYS, timing=QUICK)) as server:
        yield server


@pytest.fixture(name="named", scope="module")
def _named() -> Iterator[RunningServer]:
    with serve_script(_SCRIPT, settings=ServerSettings(access=_NAMED, timing=QUICK)) as server:
        yield server


def _post(server: RunningServer, headers: dict[str, str], path: str = _CHAT) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=_BODY, headers=headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer first-key"},
        {"authorization": "bearer second-key"},
        {"x-api-key": "first-key"},
        {"x-api-key": "wrong", "authorization": "Bearer second-key"},
    ],
)
def test_any_of_the_keys_opens_under_either_name(locked: RunningServer, headers: dict[str, str]) -> None:
    assert _post(locked, headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer first-key2"},
        {"authorization": "Bearer first-ke"},
        {"authorization": "Basic first-key"},
        {"authorization": "first-key"},
        {"x-api-key": ""},
        {"x-api-key": "FIRST-KEY"},
        {"api-key": "first-key"},
    ],
)
def test_without_one_nothing_opens(locked: RunningServer, headers: dict[str, str]) -> None:
    before = len(locked.journal)
    reply = _post(locked, headers)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.json()["error"]["code"] == "invalid_api_key"
    assert len(locked.journal) == before
    for secret in ("first-key", "second-key"):
        assert secret not in reply.text
        assert secret not in locked.log


def test_a_refusal_has_the_shape_of_its_endpoint(locked: RunningServer) -> None:
    message = _post(locked, {}, "/v1/messages").json()
    assert message["type"] == "error"
    assert message["error"]["type"] == "authentication_error"
    for path in ("/v1/responses", "/v1/models", "/metrics", "/nothing"):
        reply = httpx.get(f"{locked.url}{path}")
        assert (reply.status_code, reply.json()["error"]["type"]) == (401, "invalid_request_error"), path


def test_probes_ask_without_a_key(locked: RunningServer) -> None:
    assert httpx.get(f"{locked.url}/health").status_code == 200
    assert httpx.get(f"{locked.url}/ready").status_code == 200


def test_a_large_upload_without_a_key_sees_the_answer(locked: RunningServer) -> None:
    reply = httpx.post(f"{locked.url}{_CHAT}", content=b"x" * 20_000_000)
    assert reply.status_code == 401


def test_the_sdk_tells_a_wrong_key(locked: RunningServer) -> None:
    async def ask(key: str) -> Any:
        async with AsyncOpenAI(base_url=f"{locked.url}/v1", api_key=key, max_retries=0) as client:
            return await client.chat.completions.create(**_BODY)  # type: ignore[call-overload]

    with (
        OpenAI(base_url=f"{locked.url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="not an API key of this server"),
    ):
        client.models.list()
    with pytest.raises(openai.AuthenticationError):
        asyncio.run(ask("wrong"))
    assert asyncio.run(ask("first-key")).choices[0].message.content == "ok"


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8000", "LOCALHOST.", "x.localhost", "[::1]:80", "192.168.1.5", "Box.lan:80"],
)
def test_the_server_answers_to_its_own_names(named: RunningServer, host: str) -> None:
    assert _post(named, {"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil", "box.lan.evil", ""],
)
def test_a_name_that_was_turned_to_this_machine_gets_nothing(named: RunningServer, host: str) -> None:
    reply = _post(named, {"host": host})
    assert reply.status_code == 421
    assert "--allowed-host" in reply.json()["error"]["message"]
    assert httpx.get(f"{named.url}/health", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:3000",
        "http://127.0.0.1:1",
        "http://[::1]:3000",
        "https://chat.example",
        "https://CHAT.example",
        "https://box.lan",
        "app://obsidian.md",
        "vscode-webview://1a2b",
    ],
)
def test_pages_of_this_machine_and_allowed_origins_may_ask(named: RunningServer, origin: str) -> None:
    assert _post(named, {"origin": origin}).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://chat.example",
        "https://chat.example:444",
        "http://192.168.1.9",
        "null",
        "https://",
    ],
)
def test_pages_from_elsewhere_may_not(named: RunningServer, origin: str) -> None:
    reply = _post(named, {"origin": origin, "content-type": "text/plain"})
    assert reply.status_code == 403
    assert "--cors-origin" in reply.json()["error"]["message"]
    messages = _post(named, {"origin": origin}, "/v1/messages").json()
    assert messages["error"]["type"] == "permission_error"


def test_a_page_of_the_server_itself_may_ask(named: RunningServer) -> None:
    assert _post(named, {"host": "10.0.0.7:8000", "origin": "http://10.0.0.7:8000"}).status_code == 200
    assert _post(named, {"host": "10.0.0.7:8000", "origin": "http://10.0.0.7:8001"}).status_code == 403


def test_unchecked_names_and_origins_pass() -> None:
    with serve_script(_SCRIPT) as server:
        assert _post(server, {"host": "any.example", "origin": "https://other.example"}).status_code == 200


def test_only_listed_origins_may_read(named: RunningServer) -> None:
    allowed = _post(named, {"origin": "https://chat.example"})
    assert allowed.headers["access-control-allow-origin"] == "https://chat.example"
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    assert allowed.headers["vary"] == "Origin"
    preflight = httpx.options(f"{named.url}{_CHAT}", headers={"origin": "https://chat.example"})
    assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (
        204, "https://chat.example"
    )  # fmt: skip
    for other in ("http://localhost:3000", "https://evil.example"):
        reply = _post(named, {"origin": other})
        assert "access-control-allow-origin" not in reply.headers
        assert reply.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in _post(named, {}).headers


def test_any_origin_passes_the_guard_too() -> None:
    access = AccessSettings(any_origin=True, host_names=frozenset())
    with serve_script(_SCRIPT, settings=ServerSettings(access=access, timing=QUICK)) as server:
        reply = _post(server, {"origin": "https://any.example"})
    assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "*")


def test_a_request_keeps_the_id_that_its_client_gave_it(named: RunningServer) -> None:
    reply = _post(named, {"x-request-id": "trace-1/a.b:c=d@e+f_"})
    assert reply.headers["x-request-id"] == reply.headers["request-id"] == "trace-1/a.b:c=d@e+f_"
    named.wait_idle()
    assert "req=trace-1/a.b:c=d@e+f_" in named.log
    for bad in ("two words", "x" * 129, 'quo"te', ""):
        given = _post(named, {"x-request-id": bad}).headers["x-request-id"]
        assert given.startswith("req_"), bad
    assert _post(named, {}).headers["x-request-id"] != _post(named, {}).headers["x-request-id"]


def test_errors_name_no_path_of_this_machine(named: RunningServer) -> None:
    replies = [
        httpx.get(f"{named.url}/../../etc/passwd"),
        httpx.post(f"{named.url}{_CHAT}", content=b"{"),
        httpx.post(f"{named.url}{_CHAT}", json={"messages": 5}),
        httpx.get(f"{named.url}/v1/models/{'x' * 500}"),
    ]
    for reply in replies:
        assert reply.status_code in (400, 404)
        assert "site-packages" not in reply.text
        assert ".py" not in reply.text
        assert "Traceback" not in reply.text
