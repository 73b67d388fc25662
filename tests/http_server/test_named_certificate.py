"""Which certificate a client sees: the one of all servers behind a name, or this server's own; and a renewed one without a restart."""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import pytest

from rowlock.http_server import certificates
from rowlock.http_server.tls import NamedCertificate, server_context

NAME = "rowlock.lab"


def make_authority(directory: Path, *names: str) -> certificates.Certificates:
    directory.mkdir()
    return certificates.ensure_certificates(directory, [*certificates.LOOPBACK, *names])


def certificate_seen(server: ssl.SSLContext, name: str, authority: Path) -> bytes:
    """What a client of this authority sees that connects under this name, DER. Raises ssl.SSLError."""
    client = ssl.create_default_context(cafile=str(authority))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(5):
        for end in (theirs, ours):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return theirs.getpeercert(binary_form=True) or b""


def test_clients_see_the_certificate_of_the_name_that_they_use(tmp_path: Path) -> None:
    own, shared = make_authority(tmp_path / "own"), make_authority(tmp_path / "shared", NAME)
    context = server_context(own.certificate, tmp_path / "own" / "server.key")
    NamedCertificate(shared.certificate, tmp_path / "shared" / "server.key").install(context)
    by_name = certificate_seen(context, NAME, shared.ca)
    for local in ("localhost", "127.0.0.1"):
        assert certificate_seen(context, local, own.ca) not in (b"", by_name)
    with pytest.raises(ssl.SSLError):
        certificate_seen(context, NAME, own.ca)


def test_a_renewed_certificate_is_read_and_half_of_one_is_not(tmp_path: Path) -> None:
    own, first = make_authority(tmp_path / "own"), make_authority(tmp_path / "first", NAME)
    second = make_authority(tmp_path / "second", NAME)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    files = mounted / "tls.crt", mounted / "tls.key"

    def mount(certificate: Path, key: Path, time: int) -> None:
        for source, target in zip((certificate, key), files, strict=True):
            shutil.copyfile(source, target)
            os.utime(target, (time, time))

    mount(first.certificate, tmp_path / "first" / "server.key", 1000)
    context = server_context(own.certificate, tmp_path / "own" / "server.key")
    NamedCertificate(*files).install(context)
    assert certificate_seen(context, NAME, first.ca)
    mount(second.certificate, tmp_path / "first" / "server.key", 2000)  # the key has not come yet
    assert certificate_seen(context, NAME, first.ca), "the earlier one counts"
    mount(second.certificate, tmp_path / "second" / "server.key", 3000)
    assert certificate_seen(context, NAME, second.ca)
