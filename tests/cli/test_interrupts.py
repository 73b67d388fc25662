"""Ctrl-C at the worst moment: the flag is set, and no system call is interrupted."""

from __future__ import annotations

import _thread
import signal
import socket
import threading

import pytest

from rowlock.cli.interrupts import notice_interrupts


def test_an_interrupt_that_ends_no_system_call_is_noticed() -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]
    here, there = socket.socketpair()
    here.settimeout(20)
    with here, there:
        threading.Timer(0.1, _thread.interrupt_main).start()  # sets the flag alone
        with pytest.raises(KeyboardInterrupt), notice_interrupts(0.02):
            here.recv(1)
    after = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]
    assert after == before, "the timer is what it was"


def test_in_another_thread_nothing_is_changed() -> None:
    handlers = []

    def body() -> None:
        with notice_interrupts():
            handlers.append(signal.getsignal(signal.SIGALRM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGALRM)]
