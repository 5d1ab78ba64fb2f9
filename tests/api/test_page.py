"""The chat page: what it may load, and in a browser what it shows of an answer."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from apps.serve.api.page import PAGE_FILE
from apps.serve.settings import AccessSettings, ServerSettings
from tests.support.api_server import QUICK, RunningServer, serve_script
from tests.support.browser import CHROMIUM, Page, browser_page

_BLOCK_BEGIN = "\n\n<｜DSML｜tool_calls>\n"
_BLOCK_END = "</｜DSML｜tool_calls>"
_CALL = (
    f'{_BLOCK_BEGIN}<｜DSML｜invoke name="weather">\n'
    '<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>\n'
    f"</｜DSML｜invoke>\n{_BLOCK_END}"
)
_TOOL = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


def test_the_page_brings_everything_with_it() -> None:
    text = PAGE_FILE.read_text(encoding="utf-8")
    assert not re.findall(r"(?:https?:)?//[a-z]", re.sub(r"^\s*//.*", "", text, flags=re.MULTILINE))
    assert not re.findall(r"""\b(?:src|href|action|style|on[a-z]+)=(?!"data:,")""", text)
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
    )


def test_it_comes_without_a_key_and_under_a_policy_of_its_own() -> None:
    access = AccessSettings(keys=frozenset([b"secret"]))
    with serve_script(
        {"turns": [{"pieces": ["a"]}]}, settings=ServerSettings(access=access, timing=QUICK)
    ) as server:
        reply = httpx.get(f"{server.url}/")
        head = httpx.head(f"{server.url}/")
    assert (reply.status_code, head.status_code) == (200, 200)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.content == PAGE_FILE.read_bytes()
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        inside = reply.text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in policy


@pytest.fixture(name="page", scope="module")
def _page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser_page(tmp_path_factory.mktemp("browser")) as page:
        yield page


def _type(page: Page, text: str) -> None:
    page.evaluate(f"document.getElementById('prompt').value = {json.dumps(text)}")
    page.evaluate("document.getElementById('send').click()")


def _set(page: Page, field: str, value: str) -> None:
    page.evaluate(
        f"(() => {{ const f = document.getElementById('{field}'); f.value = {json.dumps(value)};"
        "f.dispatchEvent(new Event('change', {bubbles: true})) })()"
    )


def _open(page: Page, server: RunningServer) -> None:
    page.open(f"{server.url}/")
    page.wait_for("document.getElementById('model').textContent")


def _text(page: Page, selector: str) -> Any:
    return page.evaluate(f"[...document.querySelectorAll('{selector}')].map((e) => e.textContent)")


def _expect(page: Page, selector: str, last: str) -> None:
    wanted = json.dumps(last)
    page.wait_for(f"[...document.querySelectorAll('{selector}')].at(-1)?.textContent === {wanted}")


@needs_browser
def test_an_answer_streams_with_its_thinking_folded_and_its_speed(page: Page) -> None:
    gate = threading.Event()
    pieces = ["Let me", " see.", "</think>", "Hi <b>you</b>\n```py\nx = 1\n```\n", "Bye."]
    with serve_script({"turns": [{"pieces": pieces, "piece_delay_s": 5}] * 2}, gate=gate) as server:
        _open(page, server)
        assert "4096 tokens" in page.evaluate("document.getElementById('model').textContent")
        _type(page, "hello")
        page.wait_for("document.getElementById('stop').hidden === false")
        gate.set()
        page.wait_for("document.getElementById('send').hidden === false")
        assert _text(page, ".assistant pre") == ["x = 1"]
        _expect(page, ".assistant .text", "Hi <b>you</b>\nx = 1Bye.")
        assert _text(page, ".user .text") == ["hello"]
        assert page.evaluate("document.querySelector('details.thinking').open") is False
        assert _text(page, "details.thinking div") == ["Let me see."]
        assert re.fullmatch(r"Thought for \d+\.\d s", _text(page, "summary")[0])
        assert re.search(r"[\d.]+ tokens/s · \d+ tokens · prompt \d+ \(0 reused\)", _text(page, ".speed")[0])
        _type(page, "again")
        page.wait_for("document.querySelectorAll('.speed').length === 2")
        page.wait_for("document.getElementById('send').hidden === false")
        assert "(0 reused)" not in _text(page, ".speed")[1]
    assert page.problems == []


@needs_browser
def test_a_call_is_shown_and_goes_on_with_the_result_that_is_typed(page: Page) -> None:
    turns = [{"pieces": ["I look.</think>", _CALL]}, {"pieces": ["</think>It rains."]}]
    with serve_script({"turns": turns}) as server:
        _open(page, server)
        _set(page, "tools", json.dumps(_TOOL))
        _type(page, "weather in Oslo?")
        page.wait_for("document.querySelector('button.results')")
        assert _text(page, ".call .name") == ["weather"]
        assert json.loads(_text(page, ".call pre")[0]) == {"city": "Oslo"}
        page.evaluate("document.querySelector('.call textarea').value = 'rain'")
        page.evaluate("document.querySelector('button.results').click()")
        _expect(page, ".assistant .text", "It rains.")
        page.wait_for("document.getElementById('send').hidden === false")
        _set(page, "tools", "")
    assert page.problems == []


@needs_browser
def test_a_call_that_was_lost_on_the_way_is_no_part_of_the_conversation(page: Page) -> None:
    lost = _CALL.replace('string="true"', 'string="false"')
    both = _CALL.removesuffix(_BLOCK_END) + lost.removeprefix(_BLOCK_BEGIN)
    turns = [{"pieces": ["</think>", block]} for block in (lost, both)]
    with serve_script({"turns": turns}) as server:
        _open(page, server)
        _set(page, "tools", json.dumps(_TOOL))
        _type(page, "weather in Oslo?")
        page.wait_for("document.getElementById('send').hidden === false && history.length === 2")
        assert page.evaluate("history[1].tool_calls === undefined") is True
        _type(page, "again")
        page.wait_for("document.querySelector('button.results')")
        assert page.evaluate("history[3].tool_calls.length") == 1
        assert page.evaluate("document.querySelectorAll('.call textarea').length") == 1
        _set(page, "tools", "")
    assert page.problems == []


@needs_browser
def test_a_key_is_asked_for_and_sent(page: Page) -> None:
    settings = ServerSettings(access=AccessSettings(keys=frozenset([b"secret"])), timing=QUICK)
    with serve_script({"turns": [{"pieces": ["</think>in"]}]}, settings=settings) as server:
        page.open(f"{server.url}/")
        page.wait_for("document.getElementById('model').className === 'error'")
        assert page.evaluate("document.getElementById('settings').hidden") is False
        _type(page, "hello")
        page.wait_for("document.querySelector('.assistant .error')")
        assert "API key" in _text(page, ".assistant .error")[0]
        page.wait_for("document.getElementById('prompt').value === 'hello'")
        assert page.evaluate("history.length") == 0
        _set(page, "key", "secret")
        page.wait_for("document.getElementById('model').className === ''")
        _type(page, "hello")
        _expect(page, ".assistant .text", "in")
        assert page.evaluate("Object.values(localStorage).includes('secret')") is False
    page.problems.clear()  # a browser tells of every 401


@needs_browser
def test_text_shows_as_it_comes_and_stopping_ends_the_turn_on_the_server_too(page: Page) -> None:
    turn = {"pieces": ["</think>first", *[" more"] * 10_000], "piece_delay_s": 0.01}
    with serve_script({"turns": [turn]}) as server:
        _open(page, server)
        _type(page, "hello")
        page.wait_for("document.querySelector('.assistant .text')?.textContent.startsWith('first more')")
        page.evaluate("document.getElementById('stop').click()")
        page.wait_for("document.querySelector('.assistant .error')")
        assert _text(page, ".assistant .error") == ["Stopped."]
        server.wait_idle()
    assert "cancelled during decode" in server.log
    assert page.problems == []
