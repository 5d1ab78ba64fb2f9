"""Whose piece of work comes next: read from the journal of the engine, round by round."""

from __future__ import annotations

from typing import Any

import pytest

from apps.serve.errors import STOPPING
from apps.serve.jobs import Failed, Finished, JobPhase
from shared.scripted.journal import JournalEntry
from tests.support.scheduled import Scheduled

LONG = "a long story. " * 500  # 7,000 tokens


def _turn(name: str, count: int = 3, **fields: Any) -> dict[str, Any]:
    """The answer to a prompt whose last message begins with `name`: `count` pieces."""
    return {"match": name, "pieces": [f"{name}{i} " for i in range(count)], **fields}


def _endless(name: str) -> dict[str, Any]:
    return _turn(name, 1, eos=False)


def _picks(entries: list[JournalEntry]) -> list[int | None]:
    return [entry.turn for entry in entries if entry.call == "pick"]


def _evaluated(entries: list[JournalEntry], turn: int) -> int:
    # Before its first message no turn is known.
    return sum(entry.evaluated for entry in entries if entry.call == "sync" and entry.turn in (turn, None))


def test_each_round_has_one_token_for_every_turn_that_decodes() -> None:
    with Scheduled(_endless("alpha"), _endless("beta"), _endless("gamma"), sessions=3) as server:
        for name in ("alpha", "beta", "gamma"):
            server.ask(name)
        server.rounds(5)
        for _ in range(20):
            assert sorted(map(str, _picks(server.rounds(1)))) == ["0", "1", "2"]


def test_a_long_prompt_does_not_hold_up_who_decodes() -> None:
    with Scheduled(_endless("alpha"), _turn("beta")) as server:
        server.ask("alpha")
        server.rounds(3)
        beta = server.ask(f"beta {LONG}")
        rounds = 0
        while beta.phase is not JobPhase.DECODE:
            entries = server.rounds(1)
            assert _picks(entries) == [0]
            assert _evaluated(entries, 1) <= 256
            rounds += 1
        assert rounds <= len(beta.request.prompt.tokens) // 256 + 2
        server.run(beta)
        assert server.text(beta) == "beta0 beta1 beta2 "


def test_alone_it_has_the_whole_chunk() -> None:
    with Scheduled(_turn("alpha")) as server:
        server.ask(f"alpha {LONG}")
        assert _evaluated(server.rounds(1), 0) == 4096


def test_a_short_prompt_is_all_one_piece_beside_others() -> None:
    with Scheduled(_endless("alpha"), _turn("beta")) as server:
        server.ask("alpha")
        server.rounds(3)
        beta = server.ask("first", "answer", "second", "answer", "beta")
        server.rounds(1)
        assert beta.phase is JobPhase.DECODE


def test_who_is_being_read_takes_turns_and_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    with Scheduled(_turn("alpha"), _turn("beta"), _turn("gamma"), sessions=3) as server:
        long = server.ask(f"alpha {LONG * 4}")
        server.rounds(1)
        other, short = server.ask(f"beta {'other words. ' * 2000}"), server.ask("gamma")
        server.run(short)
        assert not server.ended(long)
        assert long.phase is other.phase is JobPhase.PREFILL
        server.run()
        assert all(isinstance(server.end(job), Finished) for job in (long, other, short))


def test_a_stream_of_short_prompts_starves_nobody() -> None:
    names = [f"short{i}." for i in range(400)]
    with Scheduled(_turn("alpha", 50), _turn("beta"), *map(_turn, names), sessions=3) as server:
        decoding = server.ask("alpha")
        server.rounds(3)
        long = server.ask(f"beta {LONG}")
        for count, name in enumerate(names):  # noqa: B007 (looked at below)
            server.ask(name)
            server.rounds(1)
            if server.ended(long) and server.ended(decoding):
                break
        # Two in prefill at most: every other piece is the long one's.
        assert count <= 2 * (len(long.request.prompt.tokens) // 256 + 2) + 50


def test_first_come_first_served() -> None:
    names = [f"name{i}." for i in range(12)]
    with Scheduled(*map(_turn, names), sessions=3) as server:
        jobs = [server.ask(name) for name in names]
        server.run()
        turns = [entry.turn for entry in server.engine.journal.entries if entry.turn is not None]
        assert list(dict.fromkeys(turns)) == list(range(12))
        for job, name in zip(jobs, names, strict=True):
            assert server.text(job) == f"{name}0 {name}1 {name}2 "


def test_a_freed_slot_is_taken_in_the_same_round() -> None:
    with Scheduled(_turn("alpha", 1), _endless("beta"), _turn("gamma"), sessions=2) as server:
        alpha = server.ask("alpha")
        server.ask("beta")
        gamma = server.ask("gamma")
        while not server.ended(alpha):
            assert gamma.phase is JobPhase.WAITING
            server.rounds(1)
        assert gamma.phase is JobPhase.DECODE


class TestCancelling:
    def test_who_waits_never_reaches_the_engine(self) -> None:
        with Scheduled(_turn("alpha"), _turn("beta"), sessions=1) as server:
            server.ask("alpha")
            beta = server.ask("beta")
            server.rounds(1)
            server.queue.cancel(beta)
            assert server.queue.queued == 0
            server.rounds(20)
            assert all(entry.turn != 1 for entry in server.engine.journal.entries)

    def test_a_prompt_in_work_ends_within_a_piece_and_what_is_done_is_found_again(self) -> None:
        with Scheduled(_endless("alpha"), _turn("beta"), sessions=2) as server:
            server.ask("alpha")
            server.rounds(3)
            beta = server.ask(f"beta {LONG}")
            server.rounds(5)
            server.queue.cancel(beta)
            entries = server.rounds(1)
            assert _evaluated(entries, 1) == 0
            assert server.queue.running == 1
            assert "cancelled during prefill" in server.log.getvalue()
            again = server.ask(f"beta {LONG}")
            server.run(again)
            end = server.end(again)
            assert isinstance(end, Finished)
            # The last point to go back to before the end; nothing but the end itself was lost.
            assert end.usage.cached >= 1000

    def test_one_that_waits_for_its_piece_does_not_wait_for_its_end(self) -> None:
        """Its slot is free although another's prompt is in work."""
        with Scheduled(_turn("alpha"), _turn("beta"), sessions=2) as server:
            server.ask(f"alpha {LONG * 4}")
            beta = server.ask(f"beta {'other words. ' * 2000}")
            server.rounds(2)
            server.queue.cancel(beta)
            server.rounds(1)
            assert server.queue.running == 1

    def test_an_answer_ends_within_a_token(self) -> None:
        with Scheduled(_endless("alpha"), _endless("beta"), sessions=2) as server:
            alpha = server.ask("alpha")
            server.ask("beta")
            server.rounds(10)
            server.queue.cancel(alpha)
            assert _picks(server.rounds(1)) == [1]
            assert server.queue.running == 1
            assert "cancelled during decode" in server.log.getvalue()

    def test_the_end_of_a_server_tells_everybody(self) -> None:
        with Scheduled(_endless("alpha"), _turn("beta"), _turn("gamma"), sessions=2) as server:
            jobs = [server.ask("alpha"), server.ask(f"beta {LONG}"), server.ask("gamma")]
            server.rounds(3)
            server.queue.close(0)
            server.queue.cut()
            jobs.append(server.ask("too late"))
            server.rounds(1)
            assert [server.end(job) for job in jobs] == [Failed(STOPPING)] * 4
            assert not server.queue.wait()


class TestFaults:
    def test_of_one_turn_do_not_reach_the_others(self) -> None:
        broken = _turn("beta", 5, fail={"at": "decode", "after": 2})
        with Scheduled(_turn("alpha", 9), broken, _turn("gamma"), sessions=2) as server:
            alpha, beta, gamma = server.ask("alpha"), server.ask("beta"), server.ask("gamma")
            server.run()
            assert isinstance(server.end(beta), Failed)
            assert server.text(alpha) == "".join(f"alpha{i} " for i in range(9))
            assert server.text(gamma) == "gamma0 gamma1 gamma2 "

    def test_of_our_own_cost_the_turn_and_free_its_slot(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with Scheduled(_turn("alpha", 9), _turn("beta", 9), sessions=2) as server:
            alpha, beta = server.ask("alpha"), server.ask("beta")
            server.rounds(5)
            put = beta.channel.put

            def fail_once(event: Any) -> None:
                monkeypatch.setattr(beta.channel, "put", put)
                raise AssertionError("a fault of ours")

            monkeypatch.setattr(beta.channel, "put", fail_once)
            server.run()
            end = server.end(beta)
            assert isinstance(end, Failed)
            assert end.failure.status == 500
            assert isinstance(server.end(alpha), Finished)
            assert "internal error: AssertionError" in server.log.getvalue()
            assert not any(slot.busy for slot in server.slots.slots)
