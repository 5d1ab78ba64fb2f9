"""States on disk behind a server: what a restart, a helper's request or a second server cost, and that a bad
file never costs an answer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apps.serve.settings import DiskSettings, ServerSettings
from apps.serve.trace import ServerTrace
from apps.trace import TraceFile
from shared.kv.store.policy import StoreSettings
from tests.support.api_server import QUICK, RunningServer, serve_script
from tests.support.conversations import HELPER, TOOLS, Figures, Talk, ask, call, figures, script, turn

# Small enough for short conversations.
_STORE = StoreSettings(min_tokens=32, trim_tokens=4, align_tokens=16, durable=False)
# A state of 100 KB whatever its length: budgets count in states.
_STATE = 100_000
_SNAPSHOT = {"fixed_bytes": _STATE}
_LONG = "hello " * 40


@contextmanager
def _serve(
    folder: Path,
    document: dict[str, Any],
    *,
    sessions: int = 1,
    store: StoreSettings = _STORE,
    trace: ServerTrace | None = None,
    **options: Any,
) -> Iterator[RunningServer]:
    settings = ServerSettings(timing=QUICK, sessions=sessions, disk=DiskSettings(folder, store), **options)
    with serve_script(document, context=16384, settings=settings, trace=trace) as server:
        yield server


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.kv"))


def _tokens_computed(server: RunningServer) -> int:
    return sum(entry["evaluated"] for entry in server.journal if entry["call"] == "sync")


@pytest.mark.parametrize(
    ("texts", "fields", "echo"),
    [
        (("one two", "three"), {"think": False}, True),
        (("a</think>one", "b</think>two"), {}, True),
        (("a</think>one", "b</think>two"), {}, False),
    ],
    ids=["plain", "thinking", "thinking-dropped"],
)
def test_after_a_restart_only_what_is_new_is_computed(
    tmp_path: Path, texts: tuple[str, str], fields: dict[str, Any], echo: bool
) -> None:
    talk = Talk(echo=echo, **fields)
    with _serve(tmp_path, script(texts[0])) as server:
        first = talk.say(server.url, _LONG)
    with _serve(tmp_path, script(texts[1])) as server:
        second = talk.say(server.url, "next")
        assert second.cached == first.live
        assert _tokens_computed(server) == second.new
        assert "kv cache source=disk-text" in server.log
        # From here on it is a conversation like any other.
        assert talk.say(server.url, "and on").cached == second.live


@pytest.mark.parametrize("echo", [True, False])
def test_with_tools_reasoning_is_kept_for_who_sends_it_back(tmp_path: Path, echo: bool) -> None:
    """Whether a client does is known once it did: until then its last answer is not saved with it."""
    talk = Talk(echo=echo, tools=TOOLS)
    with _serve(tmp_path, script("a</think>one")) as server:
        first = talk.say(server.url, _LONG)
    with _serve(tmp_path, script("b</think>two")) as server:
        second = talk.say(server.url, "next")
    with _serve(tmp_path, script("c</think>three")) as server:
        third = talk.say(server.url, "and on")
    assert second.cached == first.prompt - 1
    assert third.cached == (second.live if echo else second.prompt - 1)


@pytest.mark.parametrize("echo", [True, False])
def test_calls_are_replayed_as_they_were_sampled_after_a_restart(tmp_path: Path, echo: bool) -> None:
    talk = Talk(echo=echo, tools=TOOLS)
    with _serve(tmp_path, script("look</think>I will." + call("ls"))) as server:
        first = talk.say(server.url, _LONG)
    with _serve(tmp_path, script("done</think>Done.")) as server:
        second = talk.result(server.url)
        assert second.cached == first.live
        assert "source=disk-text" in server.log


def test_without_exact_replay_a_restart_finds_only_what_stood_before_the_call(tmp_path: Path) -> None:
    """The spaces in the call are nobody's but the model's: this is what replay is for."""
    talk = Talk(tools=TOOLS)
    with _serve(tmp_path, script("look</think>I will." + call("ls")), exact_replay=False) as server:
        first = talk.say(server.url, _LONG)
    with _serve(tmp_path, script("done</think>Done."), exact_replay=False) as server:
        assert talk.result(server.url).cached < first.live


@pytest.mark.parametrize("helper", [False, True])
@pytest.mark.parametrize("states", [1.2, 50.0], ids=["small", "large"])
@pytest.mark.parametrize("echo", [True, False])
def test_a_user_turn_after_tool_turns_reuses_all_that_the_client_saw(
    tmp_path: Path, echo: bool, states: float, helper: bool
) -> None:
    """Four turns with tools, then a user's; between them perhaps a helper's request on the only session."""
    texts = [f"r{number}</think>Step {number}." + call(f"ls {number}") for number in range(3)]
    turns = [turn(text) for text in (*texts, "r4</think>Done.", "r5</think>Ok.")]
    helping = [turn("A title", match="hello")] * 8
    store = replace(_STORE, min_tokens=512, budget_bytes=int(_STATE * states))
    talk = Talk(echo=echo, tools=TOOLS)
    spent: list[Figures] = []
    with _serve(tmp_path, {"turns": turns + helping, "snapshot": _SNAPSHOT}, store=store) as server:
        spent.append(talk.say(server.url, "look around"))
        for _ in range(3):
            if helper:
                ask(server.url, HELPER, think=False)
            spent.append(talk.result(server.url))
        if helper:
            ask(server.url, HELPER, think=False)
        last = talk.say(server.url, "thanks")
    for before, after in itertools.pairwise(spent):
        assert after.cached == before.live
    # The last answer's reasoning is in the state, and a client that drops it asks for another text.
    assert last.cached == (spent[-1].live if echo else spent[-1].prompt - 1)


@pytest.mark.parametrize("sessions", [1, 2])
def test_the_same_body_twice_computes_one_token(tmp_path: Path, sessions: int) -> None:
    """With a second session also after a helper's request in between."""
    turns = [turn("so</think>fine"), turn("x</think>other"), turn("T", match="title")]
    talk = Talk()
    with _serve(tmp_path, {"turns": turns}, sessions=sessions) as server:
        first = talk.say(server.url, _LONG)
        if sessions > 1:
            ask(server.url, HELPER, think=False)
        again = talk.again(server.url)
    assert (again.prompt, again.new) == (first.prompt, 1)


def test_a_growing_conversation_computes_its_growth(tmp_path: Path) -> None:
    talk = Talk(think=False)
    with _serve(tmp_path, script("ok")) as server:
        first = talk.say(server.url, _LONG)
        steps = [talk.say(server.url, "more and more") for _ in range(20)]
    lives = [first.live, *(step.live for step in steps)]
    assert [step.cached for step in steps] == lives[:-1]
    assert len({step.new for step in steps}) == 1


@pytest.mark.parametrize("sessions", [1, 2])
def test_branches_share_their_stem(tmp_path: Path, sessions: int) -> None:
    """Two conversations go on from one past, in turn."""
    stem, other = Talk(think=False), Talk(think=False)
    with _serve(tmp_path, script("ok"), sessions=sessions) as server:
        root = stem.say(server.url, _LONG)
        other.history = list(stem.history)
        for number in range(3):
            before = [stem.history, other.history]
            one, two = stem.say(server.url, f"left {number}"), other.say(server.url, f"right {number}")
            assert min(one.cached, two.cached) >= root.live - 1, before


def test_one_long_message_with_another_end_keeps_its_beginning(tmp_path: Path) -> None:
    long = "".join(f"line {number}\n" for number in range(600))
    with _serve(tmp_path, script("ok"), store=StoreSettings(durable=False)) as server:
        first = figures(ask(server.url, [{"role": "user", "content": long + "A" * 30}], think=False))
        second = figures(ask(server.url, [{"role": "user", "content": long + "B" * 30}], think=False))
    assert first.prompt > 5000
    assert second.cached >= first.prompt - 30 - 2048 - 32


@pytest.mark.parametrize("sessions", [1, 2])
def test_a_helper_between_turns_costs_the_conversation_nothing(tmp_path: Path, sessions: int) -> None:
    turns = [turn("ok"), turn("T", match="hello")] * 4
    talk = Talk(think=False)
    with _serve(tmp_path, {"turns": turns}, sessions=sessions) as server:
        live = talk.say(server.url, "story " * 40).live
        for _ in range(3):
            ask(server.url, HELPER, think=False)
            after = talk.say(server.url, "more")
            assert after.cached == live
            live = after.live
        assert ("source=disk-text" in server.log) is (sessions == 1)


def test_a_state_that_breaks_the_engine_is_tried_once(tmp_path: Path) -> None:
    talk = Talk(think=False)
    with _serve(tmp_path, script("one")) as server:
        first = talk.say(server.url, _LONG)
    stored = _files(tmp_path)
    broken = {"turns": [turn("two", fail={"at": "sync-after-load"}), turn("two")]}
    with _serve(tmp_path, broken) as server:
        second = talk.say(server.url, "next")
        (over,) = re.findall(r"starts over without file=(\w+\.kv) error=", server.log)
    assert talk.answers[-1]["content"] == "two"
    assert second.cached < first.live
    assert [path.name for path in stored if not path.exists()] == [over]
    assert (tmp_path / "bad" / over).exists()
    with _serve(tmp_path, script("three")) as server:
        assert talk.say(server.url, "on").cached == second.live
        assert over not in server.log


def test_a_damaged_file_costs_only_its_reuse(tmp_path: Path) -> None:
    talk = Talk(think=False)
    with _serve(tmp_path, script("one")) as server:
        talk.say(server.url, _LONG)
    for path in _files(tmp_path):
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
    with _serve(tmp_path, script("two")) as server:
        assert talk.say(server.url, "next").cached == 0
        assert "kv load failed" in server.log
    assert list((tmp_path / "bad").glob("*.kv"))


def test_two_servers_share_a_directory_and_one_of_them_writes(tmp_path: Path) -> None:
    talk = Talk(think=False)
    with _serve(tmp_path, script("one", "two", "three")) as writer:
        talk.say(writer.url, _LONG)
        talk.say(writer.url, "more " * 40)
        writer.wait_idle()
        writer.worker.store.flush()  # type: ignore[union-attr]
        with _serve(tmp_path, script("x", "y")) as reader:
            assert "read-only" in reader.log
            files = _files(tmp_path)
            assert talk.again(reader.url).cached > 0
            assert "source=disk-text" in reader.log
        assert _files(tmp_path) == files
        assert talk.say(writer.url, "on").cached > 0


def test_a_store_of_another_model_is_refused_when_named(tmp_path: Path) -> None:
    with _serve(tmp_path, script("one")):
        pass
    with (
        pytest.raises(Exception, match="another model"),
        _serve(tmp_path, script("one", engine={"name": "another"})),
    ):
        pytest.fail("it must not start")


def test_what_each_request_did_is_in_its_log_lines(tmp_path: Path) -> None:
    talk = Talk(think=False)
    with _serve(tmp_path, script("one", "two"), sessions=2) as server:
        assert f"kv store {tmp_path}: 0 files" in server.log
        talk.say(server.url, _LONG)
        talk.say(server.url, "next")
        lines = [line for line in server.log.splitlines() if "kv cache source=" in line]
        assert len(lines) == 2
        assert "source=miss slot=0 reused=0 " in lines[0]
        assert "source=memory-" in lines[1]
        assert server.log.count(" saved=") >= 2


def test_the_trace_says_what_came_from_which_file(tmp_path: Path) -> None:
    talk, folder, path = Talk(tools=TOOLS), tmp_path / "kv", tmp_path / "trace"
    with _serve(folder, script("look</think>I will." + call("ls"))) as server:
        first = talk.say(server.url, _LONG)
    with (
        TraceFile(path, say=pytest.fail) as file,
        _serve(folder, script("done</think>Done."), trace=ServerTrace(file)) as server,
    ):
        second = talk.result(server.url)
        server.wait_idle()
    entry = path.read_text()
    assert "\nreplay: mem=0 disk=1 canonical=0 missing_ids=0\n" in entry
    found = re.search(
        r"\nsource=disk-text slot=0 effective=(\d+) cached=(\d+) disk=(\d+) file=(\w+\.kv)\n", entry
    )
    assert found is not None
    assert [int(figure) for figure in found.groups()[:3]] == [second.prompt, first.live, first.live]
    assert (folder / found[4]).exists()
