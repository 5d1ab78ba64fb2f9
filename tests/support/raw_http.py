"""Chat requests on raw connections, so that a test can leave at any time and see every byte."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx

from tests.support.api_server import RunningServer


def chat_body(content: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "deepseek-chat", "messages": [{"role": "user", "content": content}]} | fields


def send_chat(
    server: RunningServer, body: dict[str, Any], path: str = "/v1/chat/completions"
) -> socket.socket:
    """A raw connection with one request on its way, so that a test can leave at any time."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = socket.create_connection(server.address, timeout=5)
    connection.sendall(head.encode() + data)
    return connection


def ask_chat(server: RunningServer, body: dict[str, Any]) -> Any:
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def content_of(answer: Any) -> Any:
    return answer["choices"][0]["message"]["content"]


def read_until(connection: socket.socket, wanted: bytes, times: int = 1) -> bytes:
    data = b""
    while data.count(wanted) < times:
        part = connection.recv(65536)
        assert part, data
        data += part
    return data
