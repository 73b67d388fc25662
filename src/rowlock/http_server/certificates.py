"""The cluster's own certificate authority and server certificate, made once in the data directory.

HTTPS is needed on loopback too: kubectl silently drops its token for `http://` servers. Keys are EC (P-256), which are fast to
make and to use. A certificate that expires soon, lacks a name or is damaged is made again under the same CA. A damaged CA or token key
is an error, because replacing it would invalidate all that it signed, and there may be a backup.
"""

from __future__ import annotations

import ipaddress
import os
import stat
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, SignatureAlgorithmOID

from rowlock.http_server.shortages import shortage_sentence

LOOPBACK = ("127.0.0.1", "::1", "localhost")
IN_PODS = (
    *(f"10.{number}.0.1" for number in range(77, 100)), "kubernetes", "kubernetes.default", "kubernetes.default.svc",
)  # fmt: skip
"""Names and addresses of the server inside pods (`kubelet/network/loopback_relay.py`), also in any network that a container engine
gives them (`kubelet/runtime/engine_gateway.py`)."""
_ACCOUNT_KEY = "service-account.key"
"""File of the key that signs service account tokens (`authentication/service_account_tokens.py`)."""
_Key = ec.EllipticCurvePrivateKey
_HASH = ec.ECDSA(hashes.SHA256())
_CA_DAYS, _SERVER_DAYS, _RENEW_DAYS = 3650, 365, 30


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of the certificate files."""

    ca: Path
    certificate: Path
    key: Path


def ensure_certificates(
    directory: Path, names: Sequence[str] = LOOPBACK, *, now: datetime | None = None
) -> Certificates:
    """The certificates of a data directory, made or renewed where needed. Raises OSError; ValueError for a damaged key."""
    now, names = now or datetime.now(UTC), (*names, *IN_PODS)
    directory.mkdir(parents=True, exist_ok=True)
    certificates = Certificates(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    signer = _ensure_authority(certificates.ca, directory / "ca.key", now)
    if not _is_sound(certificates, signer, names, now):
        _make_server(certificates, signer, names, now)
    account_key = directory / _ACCOUNT_KEY
    if not os.path.lexists(account_key):
        _write(account_key, _pem(ec.generate_private_key(ec.SECP256R1())), 0o600)
    else:
        _read_key(
            account_key, "and it is made anew, but the tokens of service accounts and applications that it signed end"
        )
    return certificates


def _ensure_authority(path: Path, key_path: Path, now: datetime) -> _Key:
    """The key of the authority; key and certificate are made if neither exists. Raises ValueError for a damaged key."""
    if not os.path.lexists(path) and not os.path.lexists(key_path):
        return _make_authority(path, key_path, now, ec.generate_private_key(ec.SECP256R1()))
    renewal = f"and {path}: both are made anew then, and clients that know the old ca.crt need the new one (`rowlock kubeconfig`)"
    key = _read_key(key_path, renewal)
    certificate = _read_certificate(path)
    is_whole = certificate is not None and _is_signed_by(certificate, certificate.public_key())
    if certificate is None or not is_whole or certificate.public_key() != key.public_key():
        # Clients that trust the old certificate accept a new one with the same name and key.
        served = _read_certificate(path.with_name("server.crt"))
        if is_whole and (served is None or not _is_signed_by(served, key.public_key())):
            raise ValueError(
                f"{path} and {key_path} do not belong together: put back the one that is wrong, from a backup perhaps"
                f" (`tar xf BACKUP {path.name} {key_path.name}`), or remove {key_path} {renewal}"
            )
        _say(
            f"{path} was {'that of another authority' if is_whole else 'missing or damaged'} and is made anew, by the same key"
        )
        _make_authority(path, key_path, now, key)
    return key


def _read_key(path: Path, otherwise: str) -> _Key:
    """Read a private key. Raises ValueError, which says what to do."""
    problem = ""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            key.public_key().verify(key.sign(b"", _HASH), b"", _HASH)  # a flipped bit makes the halves differ
            _close(path)
            return key
        problem = "it holds no EC key"
    except OSError as error:
        problem = (error.strerror or str(error)).lower()
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
        problem = "it is empty, cut or damaged"
    raise ValueError(
        f"{path} cannot be used ({problem}): put it back from a backup (`tar xf BACKUP {path.name}`), or remove it {otherwise}"
    )


def _read_certificate(path: Path) -> x509.Certificate | None:
    """The certificate; None if it is missing or damaged. Raises OSError if the file cannot be read otherwise."""
    try:
        with warnings.catch_warnings(action="error"):  # our certificates cause no warning: one means damage
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            certificate.public_key()
    except (FileNotFoundError, ValueError, UnsupportedAlgorithm, Warning):
        return None
    return certificate


def _is_signed_by(certificate: x509.Certificate, signer: object) -> bool:
    if not isinstance(signer, ec.EllipticCurvePublicKey):
        return False
    try:
        signer.verify(certificate.signature, certificate.tbs_certificate_bytes, _HASH)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return (
        certificate.signature_algorithm_oid == SignatureAlgorithmOID.ECDSA_WITH_SHA256
    )  # this field is outside the signed part


def _close(path: Path) -> None:
    """Make a key file readable by its owner only. Raises OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        path.chmod(0o600)
        _say(f"others could read {path} (mode {mode:04o}): it has mode 0600 now")


def _is_sound(certificates: Certificates, signer: _Key, names: Sequence[str], now: datetime) -> bool:
    """Whether the server certificate is signed by the authority, has its key and all names, and is not about to expire. Warns of damage."""
    if not (os.path.lexists(certificates.certificate) or os.path.lexists(certificates.key)):
        return False
    certificate = _read_certificate(certificates.certificate)
    try:
        key = serialization.load_pem_private_key(certificates.key.read_bytes(), None)
        is_whole = certificate is not None and key.public_key() == certificate.public_key()
        if is_whole:
            _close(certificates.key)
    except (FileNotFoundError, ValueError, TypeError, UnsupportedAlgorithm):
        is_whole = False
    if certificate is None or not is_whole or not _is_signed_by(certificate, signer.public_key()):
        both = f"{certificates.certificate} and {certificates.key.name}"
        _say(f"{both} were damaged, or do not belong together or to ca.crt: they are made anew")
        return False
    return _is_valid(certificate, names, now)


def _say(sentence: str) -> None:
    """Warn on stderr, which goes to the log of the server that started this process."""
    print(f"warning: {sentence}", file=sys.stderr, flush=True)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write atomically; the file has its final mode from the beginning."""
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


def _make_authority(path: Path, key_path: Path, now: datetime, key: _Key) -> _Key:
    name = _common_name("rowlock-ca")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key, now, _CA_DAYS).add_extension(identifier, critical=False).sign(key, hashes.SHA256())
    )
    if not key_path.exists():
        _write(key_path, _pem(key), 0o600)
    _write(path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return key


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _make_server(certificates: Certificates, signer: _Key, names: Sequence[str], now: datetime) -> None:
    authority = x509.load_pem_x509_certificate(certificates.ca.read_bytes())
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


def _is_valid(certificate: x509.Certificate, names: Sequence[str], now: datetime) -> bool:
    """Whether a server certificate is valid for `_RENEW_DAYS` more and has every name."""
    try:
        alternative_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound, UnsupportedAlgorithm):
        return False
    lasts = certificate.not_valid_after_utc - now > timedelta(days=_RENEW_DAYS)
    return lasts and all(_general_name(name) in list(alternative_names) for name in names)


if __name__ == "__main__":  # python -m rowlock.http_server.certificates DIRECTORY [NAME …]
    try:
        ensure_certificates(Path(sys.argv[1]), [*LOOPBACK, *sys.argv[2:]])
    except OSError as error:
        sys.exit(
            shortage_sentence(error, sys.argv[1])
            or f"{error.filename or sys.argv[1]} cannot be used ({error.strerror or error}): look at what it is and at its rights"
        )
    except ValueError as error:
        sys.exit(str(error))
