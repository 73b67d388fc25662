"""Who guesses is slowed down: by whatever way he tries to be forgotten, and nobody by a clock that was set."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rowlock.accounts import login_limits
from rowlock.accounts.login_limits import WINDOW_S, LoginLimits
from rowlock.accounts.user_accounts import UserAccounts
from rowlock.errors import TooManyRequests
from rowlock.http_server.connection_limits import client_of


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def is_refused(limits: LoginLimits, key: str) -> bool:
    try:
        limits.check(key)
    except TooManyRequests as error:
        assert 1 <= (error.retry_after or 0) <= WINDOW_S
        return True
    return False


def test_ten_thousand_other_names_make_nobody_forget() -> None:
    limits = LoginLimits(Clock(), max_failures=3)
    for _ in range(3):
        limits.count_failure("guessed")
    for number in range(2 * login_limits._MAX_ENTRIES):
        limits.count_failure(f"name-{number}")
    assert is_refused(limits, "guessed") and len(limits._failures) <= login_limits._MAX_ENTRIES


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    clock = Clock()
    limits = LoginLimits(clock, max_failures=1)
    limits.count_failure("somebody")
    clock.now -= 86_400
    assert is_refused(limits, "somebody")
    clock.now += WINDOW_S + 1
    assert not is_refused(limits, "somebody")


@pytest.mark.parametrize(
    "hosts", [[f"2001:db8::{n:x}" for n in range(20)], [f"::ffff:192.0.2.{n % 1}" for n in range(20)]]
)
def test_one_machines_addresses_count_as_one(hosts: list[str]) -> None:
    """It has 2^64 of them."""
    limits = LoginLimits(Clock(), max_failures=10)
    for host in hosts:
        limits.count_failure(client_of(host))
    assert is_refused(limits, client_of(hosts[0]))


def test_what_is_no_name_is_not_remembered(tmp_path: Path) -> None:
    async def main() -> None:
        accounts = UserAccounts(tmp_path / "accounts.json")
        for number in range(3):
            assert await accounts.authenticate(f"{number}" * 16_000, "no such password", "192.0.2.1") is None
        kept = [key for limits in (accounts._by_account, accounts._by_both) for key in limits._failures]
        accounts.close()
        assert max(len(str(key)) for key in kept) < 200

    asyncio.run(main())
