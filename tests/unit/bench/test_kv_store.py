"""The bench of saved states still runs, and its tables say what happened."""

from __future__ import annotations

from pathlib import Path

from bench import kv_store, kv_traces
from bench.kv_agents import SESSIONS


def test_a_quick_run_gives_every_figure(tmp_path: Path) -> None:
    results = kv_store.run(tmp_path, quick=True)
    assert [throughput["tokens"] for throughput in results["throughput"]] == [600, 700]
    for throughput in results["throughput"]:
        assert throughput["with checksum"]["save ratio"] > 0
        assert throughput["without checksum"]["load ratio"] > 0
    assert [(r["files"], r["found"]) for r in results["lookup"]] == [(10, 1), (100, 10)]
    text = "\n".join(kv_store.lines(results))
    assert text.count("aim: new tokens only:") == 2 * len(SESSIONS)


def test_agents_pay_for_new_tokens_only(tmp_path: Path) -> None:
    for number, session in enumerate(SESSIONS.values()):
        for slots in (1, 2):
            played = kv_traces.play(list(session(4)), tmp_path / f"{number}-{slots}", slots)
            assert all(
                turn.prefilled <= turn.new
                for turn in played
                if turn.prompt - turn.new >= kv_traces.SETTINGS.min_tokens
            ), played
            assert played[0].prefilled == played[0].new == played[0].prompt
            assert sum(turn.prefilled for turn in played) < sum(turn.prompt for turn in played) / 2


def test_a_prefix_that_is_computed_again_is_told() -> None:
    turn = {"name": "second", "prompt": 900, "new": 100, "prefilled": 900, "source": "miss", "written": 0}
    result = {"session": "s", "slots": 1, "turns": [turn]}
    assert kv_traces.lines([result])[-1].endswith("MISSED in second")
