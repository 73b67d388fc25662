"""A server whose kubeconfig has a client certificate that ends while it runs: users are told in the sentence of a token that was taken
back, and a new one counts without a restart, unnoticed where it comes in time; in files of its own or within the kubeconfig."""

from __future__ import annotations

import base64
import datetime
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.kube.acceptance.guarded import BACK_S, guarded_server
from tests.kube.acceptance.real_plane import RealPlane

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
FIRST_S, SECOND_S, LAST_S = 40.0, 20.0, 3600.0
"""Seconds for which the certificates count, one after the other."""
KEEPS: dict[str, str] = {
    "files": "write a new certificate and key into {where}/client.crt and {where}/client.key, which are read again",
    "data": "write new ones into the kubeconfig {where}/certified.kubeconfig, which is read again",
}
"""Where the certificate is kept, and what is said of it when it has ended."""
EVERY_S = 0.5
"""Seconds between two jobs: the node of a test has room for 500 pods, and more jobs would leave pods to the tests after it."""


def make_certificate(keys: Path, seconds: float) -> tuple[bytes, bytes]:
    """Certificate and key of an administrator, signed by the control plane's authority; it counts for so long."""
    authority = x509.load_pem_x509_certificate((keys / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((keys / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    names = {NameOID.COMMON_NAME: "certified", NameOID.ORGANIZATION_NAME: "system:masters"}
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid, name) for oid, name in names.items()]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(seconds=seconds))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    return made.public_bytes(pem), key.private_bytes(pem, form, serialization.NoEncryption())


def writer(plane: RealPlane, where: Path, keep: str) -> tuple[Path, Callable[[float], float]]:
    """The kubeconfig, and what writes a new certificate for so many seconds and answers when it will have ended."""
    config = json.loads(plane.kubeconfig.read_text())
    path = where / "certified.kubeconfig"
    path.touch(mode=0o600)

    def write(seconds: float) -> float:
        certificate, key = make_certificate(plane.directory / "keys", seconds)
        ends = time.monotonic() + seconds
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        if keep == "data":
            user = {
                "client-certificate-data": base64.b64encode(certificate).decode(),
                "client-key-data": base64.b64encode(key).decode(),
            }
        else:
            (where / "client.crt").write_bytes(certificate)
            (where / "client.key").write_bytes(key)
        config["users"] = [{"name": "certified", "user": user}]
        context = {"cluster": config["clusters"][0]["name"], "user": "certified"}
        config["contexts"] = [{"name": "certified", "context": context}]
        path.write_text(json.dumps({**config, "current-context": "certified"}))
        return ends

    return path, write


@pytest.mark.parametrize("keep", KEEPS)
def test_a_certificate_that_ends_is_told_and_a_new_one_counts(plane: RealPlane, tmp_path: Path, keep: str) -> None:
    kubeconfig, write = writer(plane, tmp_path, keep)
    ends, names = write(FIRST_S), itertools.count()

    def submit() -> str:
        return server.submit(f"{keep}-{next(names)}")

    with guarded_server(plane, tmp_path / "home", f"certified-{keep}", kubeconfig) as server:
        server.served.until(lambda: "submitted" not in submit(), "the certificate has ended", FIRST_S, EVERY_S)
        assert time.monotonic() > ends - 2.0
        told = submit()
        assert told.count("the cluster does not accept the credentials (Unauthorized): ") == 2, (
            told
        )  # once while it is tried
        assert KEEPS[keep].format(where=tmp_path) in told
        ends = write(SECOND_S)
        began = time.monotonic()
        server.served.until(lambda: "submitted" in submit(), "the new certificate counts", BACK_S)
        print(f"{keep}: accepted again after {time.monotonic() - began:.1f} s")
        write(LAST_S)
        assert time.monotonic() < ends, "it has not ended yet when the next one comes"

        def is_over() -> bool:
            assert "submitted" in (said := submit()) and "sent again" not in said, said
            return time.monotonic() > ends + 5.0

        server.served.until(is_over, "the second certificate has ended", SECOND_S + 10.0, EVERY_S)
        server.await_bound(f"{keep}-{next(names) - 1}")
