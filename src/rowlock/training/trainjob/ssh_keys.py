"""The key by which an MPI launcher reaches its nodes: ECDSA on P-521, private in PEM, public as OpenSSH writes it."""

from __future__ import annotations

import base64


def make_key_pair() -> tuple[str, str]:
    """A new key, private and public, as base64: data of a Secret."""
    from cryptography.hazmat.primitives import serialization  # 60 ms, which most servers never need
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return base64.b64encode(private).decode(), base64.b64encode(public).decode()
