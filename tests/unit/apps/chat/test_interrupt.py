"""Ctrl+C is a wish first, an exception the second time, and ours only while we work."""

import signal

import pytest

from apps.chat.interrupt import Interrupt


def test_the_first_is_a_wish_and_the_second_an_exception():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert not interrupt()
        signal.raise_signal(signal.SIGINT)
        assert interrupt()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_each_piece_of_work_starts_without_a_wish():
    interrupt = Interrupt()
    with interrupt:
        signal.raise_signal(signal.SIGINT)
    with interrupt:
        assert not interrupt()
