"""What kubectl prints as a warning: with real keys, on every write, and not endlessly."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from rowlock import kinds
from rowlock.api import WriteOptions
from rowlock.apiserver.admission.chain import AdmissionChain
from rowlock.apiserver.http import responses
from rowlock.apiserver.validation.object_warnings import warnings
from rowlock.apiserver.validation.pod_warnings import MAX_WARNINGS

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
ONE, OTHER = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(key: Key) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "walk")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
    return made.not_valid_after(datetime(2027, 1, 1, tzinfo=UTC)).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def text(key: Key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


BROKEN = b"-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("crt", "key", "said"),
    [
        (certificate(ONE), text(ONE), []),
        (certificate(RSA) + certificate(ONE), text(RSA), []),
        (certificate(ONE), text(OTHER), ["tls: private key does not match public key"]),
        (certificate(ONE), text(RSA), ["tls: private key type does not match public key type"]),
        (certificate(ONE), BROKEN, ["tls: failed to parse private key"]),
        (certificate(ONE), b"", ["tls: failed to find any PEM data in key input"]),
        (
            text(ONE),
            text(ONE),
            [
                "tls: failed to find certificate PEM data in certificate input, but did find a private key;"
                " PEM inputs may have been switched"
            ],
        ),
    ],
)
def test_a_certificate_and_its_key_belong_together(crt: bytes, key: bytes, said: list[str]) -> None:
    data = {"tls.crt": base64.b64encode(crt).decode(), "tls.key": base64.b64encode(key).decode()}
    assert list(warnings(kinds.SECRET, {"type": "kubernetes.io/tls", "data": data}, created=False)) == said


def test_it_is_said_again_whenever_the_object_is_written() -> None:
    meta = {"name": "x", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    given: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": meta}
    admission, heard = AdmissionChain(clock=lambda: 0.0), WriteOptions()
    made = admission.create(kinds.SERVICE, {**given, "spec": {"clusterIP": "None", "externalIPs": ["1.2.3.4"]}}, heard)
    said = ["spec.externalIPs is ignored for headless services"]
    assert heard.warnings == said
    for labels in ({"a": "b"}, {}):  # a change, and none
        heard = WriteOptions()
        admission.update(kinds.SERVICE, made, {**made, "metadata": {**made["metadata"], **labels}}, "", heard)
        assert heard.warnings == said
    heard = WriteOptions()
    admission.update(kinds.SERVICE, made, {**made, "status": {"loadBalancer": {}}}, "status", heard)
    assert heard.warnings == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["-----BEGIN A-----\n", "-----BEGIN ", "-----BEGIN A-----\nx\n-----END B-----\n", "-"])
def test_a_secret_full_of_beginnings_is_read_once(text: str) -> None:
    many = base64.b64encode((text * (700_000 // len(text))).encode()).decode()
    secret = {"type": "kubernetes.io/tls", "data": {"tls.crt": many, "tls.key": many}}
    assert list(warnings(kinds.SECRET, secret, created=True)) == [
        "tls: failed to find any PEM data in certificate input"
    ]


@pytest.mark.timeout(20)
def test_an_object_of_many_faults_is_warned_of_as_much_as_anybody_reads() -> None:
    same = {"containerPort": 80, "protocol": "TCP"}
    for ports in ([same] * 20_000, [{**same, "hostPort": number, "hostIP": "10.0.0.1"} for number in range(1, 20_000)]):
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "ports": ports}]}}
        found = list(warnings(kinds.POD, pod, created=True))
        headers = responses.warning_headers(found)
        assert len(found) in (MAX_WARNINGS, 0) and not list(warnings(kinds.POD, pod, created=False))
        assert sum(len(text) for _, text in headers) < 3 * responses.TRUNCATE_AT_TOTAL_CHARS
    service = {"spec": {"clusterIP": "None", "externalIPs": ["010.0.0.1"] * 20_000}}
    assert len(list(warnings(kinds.SERVICE, service, created=False))) == MAX_WARNINGS
    assert responses.warning_headers(["a", "b", "a"]) == [responses.warning_header("a"), responses.warning_header("b")]
    long = responses.warning_headers(["x" * 5_000, "y" * 100])
    assert [len(text) for _, text in long] == [len('299 - ""') + responses.TRUNCATE_ITEM_CHARS, len('299 - ""') + 100]
