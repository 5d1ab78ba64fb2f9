"""Bodies, headers and origins: refused early, in shape, with other clients still served."""

from __future__ import annotations

import dataclasses
import http.client
import json
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from apps.serve.settings import AccessSettings, Limits, ServerSettings
from tests.support.api_server import QUICK, RunningServer, serve_script

_SCRIPT: dict[str, Any] = {"turns": [{"pieces": ["ok"]}]}
_BODY = {"model": "deepseek-chat", "messages": [{"role": "user", "content": "hello"}]}
_SMALL = ServerSettings(
    limits=Limits(body_bytes=200_000),
    timing=dataclasses.replace(QUICK, body_stall=0.5, body_bytes_per_second=1000, refusal_linger=10.0),
)


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[RunningServer]:
    with serve_script(_SCRIPT, settings=_SMALL) as server:
        yield server


def _raw(server: RunningServer, data: bytes, *, trickle: int = 0) -> tuple[int, bytes]:
    """Status and body of whatever comes back for raw bytes; status 0 if the connection just closes. Up to
    `trickle` further bytes follow one by one, and there must be an answer before the last of them."""
    with socket.create_connection(server.address, timeout=20) as connection:
        connection.sendall(data)
        for _ in range(trickle):
            if select.select([connection], [], [], 0.01)[0]:
                break
            connection.sendall(b"x")
        else:
            assert not trickle, "no answer"
        reply = http.client.HTTPResponse(connection)
        try:
            reply.begin()
        except (http.client.RemoteDisconnected, http.client.BadStatusLine):
            return 0, b""
        return reply.status, reply.read()


def _post(headers: str, body: bytes = b"") -> bytes:
    return f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode() + body


def _still_serves(server: RunningServer) -> bool:
    return httpx.post(f"{server.url}/v1/chat/completions", json=_BODY).status_code == 200


def test_a_declared_length_over_the_limit_is_refused_unread(server: RunningServer) -> None:
    started = time.monotonic()
    status, body = _raw(server, _post("Content-Length: 99999999999\r\n"))
    assert status == 413
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert time.monotonic() - started < 5
    assert _still_serves(server)


def test_an_upload_over_the_limit_sees_the_answer(server: RunningServer) -> None:
    status, body = _raw(server, _post("Content-Length: 30000000\r\n", b"x" * 30_000_000))
    assert status == 413
    assert "200000 bytes" in json.loads(body)["error"]["message"]


def test_a_chunked_body_is_counted(server: RunningServer) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    assert httpx.post(f"{server.url}/v1/chat/completions", content=chunks()).status_code == 413
    small = httpx.post(f"{server.url}/v1/chat/completions", content=iter([json.dumps(_BODY).encode()]))
    assert small.status_code == 200


def test_a_body_that_stalls_or_trickles_is_timed_out(server: RunningServer) -> None:
    assert _raw(server, _post("Content-Length: 50\r\n", b"{"))[0] == 408
    status, body = _raw(server, _post("Content-Length: 5000\r\n"), trickle=1000)
    assert status == 408
    assert b"too slowly" in body
    assert _still_serves(server)


@pytest.mark.parametrize(
    "data",
    [
        _post("Content-Length: -5\r\n"),
        _post("Content-Length: x\r\n"),
        _post("Content-Length: 5\r\nContent-Length: 6\r\n", b"123456"),
        _post("X-Long: " + "x" * 1_000_000 + "\r\n"),
        b"GET /nothing HTTP/9.9\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /v1/models/%ff%00%0a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x/v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        _post("Transfer-Encoding: chunked\r\n", b"zz\r\n"),
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + b"x" * 100,
    ],
)
def test_faults_below_the_application_get_a_4xx_or_a_closed_connection(
    server: RunningServer, data: bytes
) -> None:
    try:
        status = _raw(server, data)[0]
    except ConnectionError:
        status = 0
    assert status == 0 or 400 <= status < 500
    assert _still_serves(server)


def test_no_body_is_a_clear_400(server: RunningServer) -> None:
    response = httpx.post(f"{server.url}/v1/chat/completions")
    assert response.status_code == 400
    assert "empty" in response.json()["error"]["message"]


def test_a_client_that_leaves_in_mid_upload_is_one_line(server: RunningServer) -> None:
    before = server.log.count("client left")
    with socket.create_connection(server.address) as connection:
        connection.sendall(_post("Content-Length: 100\r\n", b"{"))
    assert _still_serves(server)
    assert server.log.count("client left") == before + 1


def test_unknown_routes_and_methods(server: RunningServer) -> None:
    missing = httpx.get(f"{server.url}/v1/nothing")
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == "no such endpoint: GET /v1/nothing"
    assert httpx.get(f"{server.url}/v1/chat/completions").status_code == 405
    assert httpx.post(f"{server.url}/v1/messages", json={}).json()["type"] == "error"
    assert httpx.head(f"{server.url}/nothing").status_code == 404
    # A client that looks whether there is a server.
    assert httpx.head(f"{server.url}/").status_code == 200


def test_a_slash_too_many_is_no_redirect(server: RunningServer) -> None:
    """Where it led would be the sender's Host header's choice."""
    reply = httpx.post(f"{server.url}/v1/chat/completions/", json=_BODY, headers={"host": "evil"})
    assert reply.status_code == 404
    assert "evil" not in reply.text
    assert "location" not in reply.headers


def test_requests_in_a_row_on_one_connection_and_older_http(server: RunningServer) -> None:
    body = json.dumps(_BODY | {"stream": True}).encode()
    request = _post(f"Content-Length: {len(body)}\r\n", body)
    with socket.create_connection(server.address, timeout=20) as connection:
        connection.sendall(request * 3 + request.replace(b"HTTP/1.1", b"HTTP/1.0"))
        data = b""
        while part := connection.recv(65536):
            data += part
    assert data.count(b"HTTP/1.1 200") == 4
    assert data.count(b"data: [DONE]") == 4


def test_a_client_that_waits_for_leave_to_send_gets_it(server: RunningServer) -> None:
    body = json.dumps(_BODY).encode()
    with socket.create_connection(server.address, timeout=20) as connection:
        connection.sendall(_post(f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_every_reply_has_a_request_id(server: RunningServer) -> None:
    for response in (httpx.get(f"{server.url}/health"), httpx.get(f"{server.url}/nothing")):
        assert response.headers["x-request-id"].startswith("req_")


def test_without_the_flag_no_origin_may_read(server: RunningServer) -> None:
    preflight = httpx.options(f"{server.url}/v1/chat/completions", headers={"origin": "http://a"})
    assert preflight.status_code == 204
    assert not any(name.startswith("access-control") for name in preflight.headers)


def test_with_the_flag_every_reply_may_be_read() -> None:
    settings = dataclasses.replace(_SMALL, access=AccessSettings(any_origin=True))
    with serve_script(_SCRIPT, settings=settings) as server:
        url = f"{server.url}/v1/chat/completions"
        replies = [
            httpx.options(url),
            httpx.options(f"{server.url}/anything"),
            httpx.get(f"{server.url}/health"),
            httpx.get(f"{server.url}/nothing"),
            httpx.post(url, content=b"{"),
            httpx.post(url, json=_BODY),
            httpx.post(url, json=_BODY | {"stream": True}),
            httpx.post(url, content=b"x" * 300_000),
        ]
    assert [reply.status_code for reply in replies] == [204, 204, 200, 404, 400, 200, 200, 413]
    for reply in replies:
        assert reply.headers["access-control-allow-origin"] == "*"
        allowed = reply.headers["access-control-allow-headers"].lower()
        for name in ("authorization", "x-api-key", "anthropic-version", "content-type"):
            assert name in allowed
