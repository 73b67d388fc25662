"""Keys for one test cluster: a CA, the API server's certificate, an administrator's, and the service account key.

Made once per directory with `cryptography`, so that clients verify TLS as they would in production.
"""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=365)


def write_identities(where: Path) -> None:
    """`ca.crt`, `server.{crt,key}`, `admin.{crt,key}`, `accounts.key` in `where`; nothing if they are there."""
    if (where / "accounts.key").exists():
        return
    where.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate(_name("rowlock-test-ca"), ca_key, None, [x509.BasicConstraints(True, None)])
    _write(where / "ca.key", _pem(ca_key))
    (where / "ca.crt").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    _issue(where, "server", _name("kube-apiserver"), (ca, ca_key), [x509.SubjectAlternativeName(names), usages])
    admin = _name("admin", "system:masters")
    _issue(where, "admin", admin, (ca, ca_key), [x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])])
    _write(where / "accounts.key", _pem(ec.generate_private_key(ec.SECP256R1())))


Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _issue(where: Path, stem: str, subject: x509.Name, ca: Authority, extensions: list[x509.ExtensionType]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    made = _certificate(subject, key, ca, [x509.BasicConstraints(False, None), *extensions])
    _write(where / f"{stem}.key", _pem(key))
    (where / f"{stem}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, ca: Authority | None, extensions: list[x509.ExtensionType]
) -> x509.Certificate:
    issuer, issuer_key = (ca[0].subject, ca[1]) if ca else (subject, key)
    now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(_key_usage(signs=ca is None), critical=True)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(issuer_key, hashes.SHA256())


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, key_cert_sign=signs, crl_sign=signs, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _name(common: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
