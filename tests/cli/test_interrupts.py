"""Ctrl-C at the worst moment: the flag is set, and no system call is interrupted."""

from __future__ import annotations

import _thread
import signal
import socket
import subprocess
import sys
import threading

import pytest

from rowlock.cli.interrupts import notice_interrupts


def test_an_interrupt_that_ends_no_system_call_is_noticed() -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]
    here, there = socket.socketpair()
    here.settimeout(60)
    with here, there:
        threading.Timer(0.1, _thread.interrupt_main).start()  # sets the flag alone
        with pytest.raises(KeyboardInterrupt), notice_interrupts(0.02):
            here.recv(1)
    after = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[1]
    assert after == before, "the timer is what it was"


def test_the_alarm_of_somebody_else_comes_in_its_time() -> None:
    """That of a test that has hung, for one."""

    class Late(Exception):
        pass

    def complain(*_: object) -> None:
        raise Late

    handler, (seconds, period) = signal.signal(signal.SIGALRM, complain), signal.setitimer(signal.ITIMER_REAL, 0.3)
    here, there = socket.socketpair()
    here.settimeout(60)
    try:
        with here, there:
            with pytest.raises(Late), notice_interrupts(0.02):
                here.recv(1)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with notice_interrupts(20):
                pass
            with pytest.raises(Late):
                here.recv(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds, period)


def test_an_alarm_that_ends_the_program_ends_it() -> None:
    program = (
        "import signal, socket; from rowlock.cli.interrupts import notice_interrupts\n"
        "here, there = socket.socketpair(); signal.setitimer(signal.ITIMER_REAL, 0.1)\n"
        "with notice_interrupts(0.02): here.recv(1)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=200).returncode == -signal.SIGALRM


def test_in_another_thread_nothing_is_changed() -> None:
    handlers = []

    def body() -> None:
        with notice_interrupts():
            handlers.append(signal.getsignal(signal.SIGALRM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGALRM)]
