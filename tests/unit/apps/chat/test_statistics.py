"""The figures of a turn."""

from apps.chat.statistics import TurnStatistics


def test_the_line_has_two_decimals():
    turn = TurnStatistics(reused=5, prefilled=10, generated=3, prefill_seconds=0.75, generation_seconds=1.5)
    assert turn.line() == "prefill: 13.33 t/s, generation: 2.00 t/s"


def test_no_work_is_no_division_by_zero():
    assert TurnStatistics().line() == "prefill: 0.00 t/s, generation: 0.00 t/s"


def test_turns_add_up():
    assert TurnStatistics(1, 2, 3, 4.0, 5.0).plus(TurnStatistics(10, 20, 30, 40.0, 50.0)) == TurnStatistics(
        11, 22, 33, 44.0, 55.0
    )
