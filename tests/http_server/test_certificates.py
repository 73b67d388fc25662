"""The CA and the server's certificate: made once, renewed when needed, private."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from rowlock.http_server import certificates


def test_made_once_and_private(tmp_path: Path) -> None:
    found = certificates.ensure_certificates(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert set(before) == {"ca.crt", "ca.key", "server.crt", "server.key", "service-account.key"}
    assert certificates.ensure_certificates(tmp_path) == found
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert all((tmp_path / name).stat().st_mode & 0o77 == 0 for name in ("ca.key", "server.key", "service-account.key"))


def test_signed_by_the_ca_for_loopback(tmp_path: Path) -> None:
    found = certificates.ensure_certificates(tmp_path)
    ca, server = (x509.load_pem_x509_certificate(p.read_bytes()) for p in (found.ca, found.certificate))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [
        f"10.{number}.0.1" for number in range(77, 100)
    ]  # of the pods' network, and those of container engines
    assert names.get_values_for_type(x509.DNSName) == ["localhost", *certificates.IN_PODS[len(addresses) :]]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1", *addresses]


def test_renewed_near_its_end_and_for_a_new_name_under_the_same_ca(tmp_path: Path) -> None:
    found = certificates.ensure_certificates(tmp_path)
    ca, first = found.ca.read_bytes(), found.certificate.read_bytes()
    certificates.ensure_certificates(tmp_path, now=datetime.now(UTC) + timedelta(days=350))
    second = found.certificate.read_bytes()
    certificates.ensure_certificates(tmp_path, [*certificates.LOOPBACK, "gpu-box"])
    assert len({first, second, found.certificate.read_bytes()}) == 3
    assert found.ca.read_bytes() == ca
