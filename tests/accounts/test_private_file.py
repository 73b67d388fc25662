"""Accounts and credentials with a flipped bit, which may still be good JSON; files of a rowlock that wrote no checksum."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from rowlock.accounts.private_file import load_private_file, save_private_file
from rowlock.errors import BadRequest


class Kept(msgspec.Struct):
    """As the files of accounts are."""

    users: dict[str, str]
    version: int = 1


WHOLE = Kept({"ana": "hash", "bob": "hash"})


def load(path: Path) -> Kept | None:
    return load_private_file(path, Kept, "the hashes", "accounts")


def test_each_flipped_bit_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "accounts.json"
    asyncio.run(save_private_file(path, WHOLE))
    content, refused = path.read_bytes(), 0
    assert load(path) == WHOLE
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert load(path) == WHOLE, f"bit {bit}: {flipped!r}"
        except BadRequest as refusal:
            refused += 1
            assert str(path) in refusal.message and "put the file back from a backup" in refusal.message
    assert refused > 7 * (len(content) - len(b',"crc32":"01234567"}'))


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.98])
def test_a_file_that_is_cut_is_refused(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "accounts.json"
    asyncio.run(save_private_file(path, WHOLE))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(BadRequest, match="it is empty" if not kept else "cannot be read"):
        load(path)


def test_what_was_written_without_a_checksum_is_read(tmp_path: Path) -> None:
    """By an earlier rowlock; and that reads ours, since it ignores what it does not know."""
    path = tmp_path / "accounts.json"
    path.write_bytes(msgspec.json.encode(WHOLE))
    path.chmod(0o600)
    assert load(path) == WHOLE
    asyncio.run(save_private_file(path, WHOLE))
    assert msgspec.json.decode(path.read_bytes(), type=Kept) == WHOLE
    path.unlink()
    assert load(path) is None


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "accounts.json"
    path.mkdir(mode=0o700)
    with pytest.raises(BadRequest, match=r"accounts\.json cannot be read \(Is a directory\)"):
        load(path)
    path.rmdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadRequest, match=r"accounts\.json cannot be read"):
        load(path)
