"""Two prompts with the same beginning at once: the second waits while that is cheaper, and no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.serve.jobs import Finished, JobPhase
from tests.support.scheduled import Scheduled

SHARED = "the same beginning. " * 200  # 4,000 tokens


def _turn(name: str, **fields: Any) -> dict[str, Any]:
    return {"match": name, "pieces": [*"done"], **fields}


def _evaluated(server: Scheduled) -> int:
    return sum(entry.evaluated for entry in server.engine.journal.entries)


def _cached(server: Scheduled, job: Any) -> int:
    end = server.end(job)
    assert isinstance(end, Finished)
    return end.usage.cached


def test_the_same_prompt_again_is_not_computed_twice() -> None:
    with Scheduled(_turn("alpha"), _turn("alpha")) as server:
        first, second = server.ask(SHARED + "alpha"), server.ask(SHARED + "alpha")
        server.rounds(1)
        assert second.phase is JobPhase.WAITING
        assert not server.slots.slots[1].busy
        server.run()
        count = len(second.request.prompt.tokens)
        assert _cached(server, second) == count - 1
        assert _evaluated(server) == count + 1
        assert server.text(first) == server.text(second) == "done"


def test_a_branch_waits_for_the_common_turns() -> None:
    with Scheduled(_turn("alpha"), _turn("beta")) as server:
        server.ask(SHARED, "answer", "alpha")
        second = server.ask(SHARED, "answer", "beta")
        server.rounds(1)
        assert second.phase is JobPhase.WAITING
        server.run()
        assert _cached(server, second) >= 4000


@pytest.mark.parametrize("begins", ["another beginning. " * 200, "short "])
def test_other_prompts_begin_at_once(begins: str) -> None:
    with Scheduled(_turn("alpha", eos=False), _turn("beta")) as server:
        server.ask(SHARED + "alpha")
        other = server.ask(begins + "beta")
        server.rounds(4)
        assert other.phase is not JobPhase.WAITING


def test_what_is_live_elsewhere_is_not_waited_for() -> None:
    """The second prompt has a slot of its own that holds as much."""
    with Scheduled(_turn("alpha"), _turn("beta"), _turn("gamma", eos=False), _turn("delta")) as server:
        server.run(server.ask(SHARED, "answer", "alpha"))
        busy = server.ask("gamma")
        server.rounds(2)
        assert server.slots.slots[1].busy
        server.queue.cancel(busy)
        server.rounds(1)
        server.ask(SHARED, "answer", "alpha", "done", "gamma")
        server.rounds(2)
        other = server.ask("beta")
        server.rounds(2)
        assert other.phase is not JobPhase.WAITING


def test_it_waits_for_no_more_work_than_it_is_spared_and_others_pass_meanwhile() -> None:
    turns = [_turn("alpha", eos=False), _turn("alpha"), _turn("gamma")]
    with Scheduled(*turns) as server:
        server.ask(SHARED + "alpha")
        patient = server.ask(SHARED + "alpha")
        count = len(patient.request.prompt.tokens)
        server.rounds(2)
        passing = server.ask("gamma")
        server.run(passing)
        assert patient.phase is JobPhase.WAITING
        rounds = 0
        while patient.phase is JobPhase.WAITING:
            server.rounds(1)
            rounds += 1
        # A token in each round, which counts as 16 of a prompt.
        assert rounds <= count // 16 + 1
        server.run(patient)
        assert server.text(patient) == "done"


def test_who_waits_may_leave() -> None:
    with Scheduled(_turn("alpha", eos=False), _turn("alpha")) as server:
        server.ask(SHARED + "alpha")
        patient = server.ask(SHARED + "alpha")
        server.rounds(2)
        server.queue.cancel(patient)
        server.rounds(300)
        assert patient.phase is JobPhase.WAITING
        assert not server.queue.queued


def test_once_the_beginning_is_on_disk_nobody_waits_for_the_answer(tmp_path: Path) -> None:
    with Scheduled(_turn("alpha", eos=False), _turn("beta"), folder=tmp_path) as server:
        first = server.ask("alpha", system=SHARED)
        second = server.ask("beta", system=SHARED)
        server.rounds(1)
        assert second.phase is JobPhase.WAITING
        server.rounds(3)
        assert second.phase is not JobPhase.WAITING
        server.run(second)
        assert not server.ended(first)
        assert _cached(server, second) >= 4000
