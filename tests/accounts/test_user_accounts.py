"""Local accounts: what is on disk, what a login costs, and who has to wait."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rowlock.accounts import passwords, user_accounts
from rowlock.accounts.user_accounts import FILE_NAME, UserAccounts
from rowlock.errors import AlreadyExists, ApiError, BadRequest, Internal, TooManyRequests

PASSWORD = "correct horse"


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def play(directory: Path, check: Callable[[UserAccounts, Clock], Awaitable[None]]) -> None:
    clock = Clock()

    async def main() -> None:
        accounts = UserAccounts.open(directory, clock)
        try:
            await check(accounts, clock)
        finally:
            accounts.close()

    asyncio.run(main())


def test_an_account_outlives_the_server_and_its_password_is_nowhere(tmp_path: Path) -> None:
    async def make(accounts: UserAccounts, clock: Clock) -> None:
        await accounts.create("ana", PASSWORD, "owner")

    async def log_in(accounts: UserAccounts, clock: Clock) -> None:
        assert await accounts.authenticate("ana", PASSWORD, "a") == accounts.get("ana")
        assert await accounts.authenticate("ana", PASSWORD + "!", "a") is None
        assert await accounts.authenticate("bob", PASSWORD, "a") is None

    os.umask(os.umask(0))
    play(tmp_path, make)
    play(tmp_path, log_in)
    path = tmp_path / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "$argon2id$" in path.read_text() and PASSWORD not in path.read_text()
    assert [one.name for one in tmp_path.iterdir()] == [FILE_NAME]


def test_a_change_ends_what_is_logged_in(tmp_path: Path) -> None:
    async def check(accounts: UserAccounts, clock: Clock) -> None:
        generations = [(await accounts.create("ana", PASSWORD, "owner")).generation]
        await accounts.set_password("ana", "another horse")
        generations.append(accounts.find("ana").generation)
        assert await accounts.authenticate("ana", PASSWORD, "a") is None
        assert await accounts.authenticate("ana", "another horse", "a")
        await accounts.end_sessions("ana")
        generations.append(accounts.find(accounts.find("ana").id).generation)
        assert len(set(generations)) == 3
        with pytest.raises(AlreadyExists):
            await accounts.create("ana", PASSWORD, "owner")

    play(tmp_path, check)


@pytest.mark.parametrize(
    "name", ["", "Ana", "a b", "system:masters", "app:ci", "rowlock-admin", "-a", "a" * 129, 1, None, "a\n"]
)
def test_a_name_is_nobody_elses(tmp_path: Path, name: object) -> None:
    async def check(accounts: UserAccounts, clock: Clock) -> None:
        with pytest.raises(BadRequest):
            await accounts.create(name, PASSWORD, "owner")

    play(tmp_path, check)


@pytest.mark.parametrize("password", ["", "hush hush", "x" * 1025, "tabs\tare not typed", None, 10**12])
def test_a_password_that_is_refused_is_in_no_message(tmp_path: Path, password: object) -> None:
    async def check(accounts: UserAccounts, clock: Clock) -> None:
        with pytest.raises(BadRequest) as refused:
            await accounts.create("ana", password, "owner")
        assert not password or str(password) not in refused.value.message
        assert accounts.all() == []

    play(tmp_path, check)


def test_who_guesses_locks_out_his_address_long_before_the_account(tmp_path: Path) -> None:
    async def check(accounts: UserAccounts, clock: Clock) -> None:
        await accounts.create("ana", PASSWORD, "owner")

        async def attempt(password: str, address: str) -> object:
            try:
                return await accounts.authenticate("ana", password, address) is not None
            except TooManyRequests as error:
                return error.retry_after

        for _ in range(user_accounts.FAILURES_OF_ONE):
            assert await attempt("wrong", "evil") is False
        assert await attempt(PASSWORD, "evil") == int(user_accounts.WINDOW_OF_ONE_S)
        assert await attempt(PASSWORD, "home") is True
        clock.now += user_accounts.WINDOW_OF_ONE_S
        assert await attempt(PASSWORD, "evil") is True

    play(tmp_path, check)


def test_many_addresses_lock_the_account_until_it_has_a_new_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(accounts: UserAccounts, clock: Clock) -> None:
        await accounts.create("ana", PASSWORD, "owner")
        for number in range(user_accounts.FAILURES_OF_ALL):
            assert await accounts.authenticate("ana", "x" * 2000, f"address {number}") is None  # too long to be hashed
        with pytest.raises(TooManyRequests):
            await accounts.authenticate("ana", PASSWORD, "home")
        await accounts.set_password("ana", "another horse")
        assert await accounts.authenticate("ana", "another horse", "home")

    play(tmp_path, check)


def test_a_flood_of_logins_is_bounded_and_the_loop_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand at once: as many hash as there are threads, a few wait, the others are told at once; attempts that come together
    are no way around the limit of one address."""

    async def check(accounts: UserAccounts, clock: Clock) -> None:
        monkeypatch.setattr(passwords, "_compare", compare)
        flood = [accounts.authenticate("ana", "wrong wrong", f"address {n % 100}") for n in range(1000)]
        answers = await asyncio.gather(*flood, return_exceptions=True)
        assert most <= passwords.WORKERS
        assert answers.count(None) <= passwords.MAX_WAITING
        assert all(isinstance(one, TooManyRequests) for one in answers if one is not None)

    running = most = 0

    def compare(stored: str, password: str) -> bool:
        nonlocal running, most
        running += 1
        most = max(most, running)
        running -= 1
        return False

    play(tmp_path, check)


def test_attempts_at_once_count_before_they_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(accounts: UserAccounts, clock: Clock) -> None:
        monkeypatch.setattr(passwords, "_compare", lambda stored, password: False)
        attempts = [accounts.authenticate("ana", "wrong wrong", "evil") for _ in range(30)]
        answers = await asyncio.gather(*attempts, return_exceptions=True)
        assert answers.count(None) == user_accounts.FAILURES_OF_ONE

    play(tmp_path, check)


def test_a_hash_that_asks_for_all_memory_is_no_hash(tmp_path: Path) -> None:
    async def check(accounts: UserAccounts, clock: Clock) -> None:
        hashes = passwords.PasswordHashes()
        hashed = await hashes.make(PASSWORD)
        assert await hashes.matches(hashed, PASSWORD)
        assert not await hashes.matches(hashed.replace("m=32768", "m=3276800"), PASSWORD)
        assert not await hashes.matches("not a hash", PASSWORD)
        assert not await hashes.matches("", "nobody's")
        hashes.close()

    play(tmp_path, check)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (b"{", 0o600, "mend the file"),
        (b'{"users": [{}]}', 0o600, "mend the file"),
        (b'{"users": []}', 0o644, "chmod 600"),
    ],
)
def test_a_file_that_is_damaged_or_open_stops_the_start(tmp_path: Path, content: bytes, mode: int, said: str) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ApiError) as refused:
        UserAccounts.open(tmp_path)
    assert said in refused.value.message


def test_what_cannot_be_written_does_not_count(tmp_path: Path) -> None:
    async def check(accounts: UserAccounts, clock: Clock) -> None:
        (tmp_path / (FILE_NAME + ".new")).mkdir()
        with pytest.raises(Internal):
            await accounts.create("ana", PASSWORD, "owner")
        assert accounts.all() == []

    play(tmp_path, check)
