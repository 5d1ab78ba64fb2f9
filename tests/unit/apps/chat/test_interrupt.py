"""Ctrl+C is a wish first, an exception when the wish is not heard, and ours only while we work."""

import signal

import pytest

from apps.chat.interrupt import PATIENCE_SECONDS, Interrupt


def test_the_first_is_a_wish_and_a_late_second_an_exception():
    before = signal.getsignal(signal.SIGINT)
    now = [0.0]
    with Interrupt(clock=lambda: now[0]) as interrupt:
        assert not interrupt()
        signal.raise_signal(signal.SIGINT)
        assert interrupt()
        now[0] = PATIENCE_SECONDS
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_quick_presses_are_one_wish():
    now = [5.0]
    with Interrupt(clock=lambda: now[0]) as interrupt:
        for _ in range(4):
            signal.raise_signal(signal.SIGINT)
            now[0] += PATIENCE_SECONDS / 5
        assert interrupt()


def test_each_piece_of_work_starts_without_a_wish():
    interrupt = Interrupt()
    with interrupt:
        signal.raise_signal(signal.SIGINT)
    with interrupt:
        assert not interrupt()
