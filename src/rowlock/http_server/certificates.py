"""The cluster's own certificate authority and server certificate, made once in the data directory.

HTTPS is needed on loopback too: kubectl silently drops its token for `http://` servers. Keys are EC (P-256): fast to
make and to use. A certificate near its end, or one that lacks a wanted name, is made anew under the same CA.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("127.0.0.1", "::1", "localhost")
IN_PODS = ("10.77.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""What pods call the server (`kubelet/network/loopback_relay.py`)."""
_ACCOUNT_KEY = "service-account.key"
"""What service account tokens are signed with (`authentication/service_account_tokens.py`)."""
_Key = ec.EllipticCurvePrivateKey
_CA_DAYS, _SERVER_DAYS, _RENEW_DAYS = 3650, 365, 30


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where the files are."""

    ca: Path
    certificate: Path
    key: Path


def ensure_certificates(
    directory: Path, names: Sequence[str] = LOOPBACK, *, now: datetime | None = None
) -> Certificates:
    """The certificates of a data directory, made or renewed where needed."""
    now, names = now or datetime.now(UTC), (*names, *IN_PODS)
    directory.mkdir(parents=True, exist_ok=True)
    certificates = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    ca_key = directory / "ca.key"
    if not (certificates.ca.exists() and ca_key.exists()):
        _make_authority(certificates.ca, ca_key, now)
        certificates.certificate.unlink(missing_ok=True)
    if not (certificates.certificate.exists() and certificates.key.exists()) or not _is_valid(
        certificates.certificate, names, now
    ):
        _make_server(certificates, ca_key, names, now)
    if not (account_key := directory / _ACCOUNT_KEY).exists():
        _write(account_key, _pem(ec.generate_private_key(ec.SECP256R1())), 0o600)
    return certificates


def _write(path: Path, data: bytes, mode: int) -> None:
    """Whole or not at all, and never readable by others while it is written."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind, form = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
    return key.private_bytes(form, kind, serialization.NoEncryption())


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key, now: datetime, days: int) -> x509.CertificateBuilder:
    is_authority = subject == issuer
    constraints = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(constraints, critical=True)
        .add_extension(_key_usage(signs=is_authority), critical=True)
    )


def _make_authority(path: Path, key_path: Path, now: datetime) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), _common_name("rowlock-ca")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key, now, _CA_DAYS).add_extension(identifier, critical=False).sign(key, hashes.SHA256())
    )
    _write(key_path, _pem(key), 0o600)
    _write(path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _make_server(certificates: Certificates, ca_key: Path, names: Sequence[str], now: datetime) -> None:
    authority = x509.load_pem_x509_certificate(certificates.ca.read_bytes())
    signer = serialization.load_pem_private_key(ca_key.read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{ca_key} does not hold an EC key: remove it and {certificates.ca} to have new ones made")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_common_name("rowlock"), authority.subject, key, now, _SERVER_DAYS)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(n) for n in dict.fromkeys(names)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    _write(certificates.key, _pem(key), 0o600)
    _write(certificates.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _is_valid(path: Path, names: Sequence[str], now: datetime) -> bool:
    """Whether a server certificate lasts a while yet and has every name."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    lasts = certificate.not_valid_after_utc - now > timedelta(days=_RENEW_DAYS)
    return lasts and all(_general_name(name) in list(alternative_names) for name in names)


if __name__ == "__main__":  # python -m rowlock.http_server.certificates DIRECTORY [NAME …]
    try:
        ensure_certificates(Path(sys.argv[1]), [*LOOPBACK, *sys.argv[2:]])
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
