"""Each certificate and key, empty, cut, with a flipped bit, of another cluster, or no file at all: made anew and said, or refused."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509

from rowlock.http_server import certificates

FILES = ("ca.crt", "ca.key", "server.crt", "server.key", "service-account.key")
KEPT = ("ca.key", "service-account.key")
"""What nothing else tells: never replaced while it is there."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    certificates.ensure_certificates(tmp_path / "data")
    return tmp_path / "data"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def check_mended_or_refused(directory: Path, name: str, before: dict[str, bytes], said: Callable[[], str]) -> None:
    """`before`: the files while they were whole. A former client is one that knows the former ca.crt."""
    damaged = contents(directory)
    said()
    try:
        found = certificates.ensure_certificates(directory)
    except (ValueError, OSError) as refusal:
        assert (name in str(refusal) and re.search("remove|put it back", str(refusal))) or isinstance(refusal, OSError)
        assert contents(directory) == damaged, "what is refused is left as it is"
        return
    after = contents(directory)
    assert all(after[kept] == damaged[kept] for kept in KEPT), "a flip in the last newline damages nothing"
    served = x509.load_pem_x509_certificate(found.certificate.read_bytes())
    for authority in (after["ca.crt"], before["ca.crt"]):
        served.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    assert name in said() or after == damaged, "what is made anew is said"


@pytest.mark.parametrize("name", FILES)
def test_empty_cut_and_flipped(directory: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, draw = contents(directory), random.Random(name)
    whole = before[name]
    damages = [b"", whole[: len(whole) // 2], b"\n", b"\0" * len(whole)]
    for _ in range(40):
        flipped = bytearray(whole)
        flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        damages.append(bytes(flipped))
    for damaged in damages:
        for other, content in before.items():
            (directory / other).write_bytes(content)
        (directory / name).write_bytes(damaged)
        if damaged.strip(b"\0\n"):  # a flip in the base64's last bits, or in a newline, changes nothing
            check_mended_or_refused(directory, name, before, lambda: capsys.readouterr().err)
        elif name in KEPT:
            with pytest.raises(
                ValueError, match=rf"{name} cannot be used \(it is empty, cut or damaged\): put it back from a"
            ):
                certificates.ensure_certificates(directory)
        else:
            certificates.ensure_certificates(directory)
            assert name in capsys.readouterr().err
            assert contents(directory)[name].startswith(b"-----BEGIN")


@pytest.mark.parametrize("name", FILES)
def test_of_another_cluster(directory: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificates.ensure_certificates(tmp_path / "other")
    before = contents(directory)
    shutil.copy(tmp_path / "other" / name, directory / name)
    if name == "service-account.key":
        certificates.ensure_certificates(directory)  # as good as ours: only tokens would tell
    else:
        check_mended_or_refused(directory, name, before, lambda: capsys.readouterr().err)


@pytest.mark.parametrize("name", FILES)
def test_a_directory_is_named_and_left(directory: Path, name: str) -> None:
    (directory / name).unlink()
    (directory / name).mkdir()
    with pytest.raises((ValueError, OSError), match=re.escape(name)) as refusal:
        certificates.ensure_certificates(directory)
    assert isinstance(refusal.value, OSError) or "is a directory" in str(refusal.value)
    assert (directory / name).is_dir()


@pytest.mark.parametrize("name", FILES)
def test_a_dead_link_is_not_written_through(directory: Path, name: str, tmp_path: Path) -> None:
    (directory / name).unlink()
    (directory / name).symlink_to(tmp_path / "nowhere")
    if name in KEPT:
        with pytest.raises(ValueError, match=re.escape(name)):
            certificates.ensure_certificates(directory)
    else:
        certificates.ensure_certificates(directory)
        assert not (directory / name).is_symlink()
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["ca.key", "server.key", "service-account.key"])
def test_a_key_that_others_could_read_is_closed(directory: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / name).chmod(0o644)
    certificates.ensure_certificates(directory)
    assert (directory / name).stat().st_mode & 0o777 == 0o600
    assert f"others could read {directory / name} (mode 0644)" in capsys.readouterr().err
