"""The SSH key with which an MPI launcher reaches its nodes: ECDSA P-521, private in PEM, public in OpenSSH's format."""

from __future__ import annotations

import base64

POLL_SECONDS = 0.05
"""How soon to ask again for a key that is not ready."""


class KeyNotReady(Exception):
    """The library that makes keys is being loaded."""


def make_key_pair() -> tuple[str, str]:
    """A new (private, public) key, base64-encoded as in the data of a Secret."""
    from cryptography.hazmat.primitives import serialization  # takes 0.1 s, and most servers never need it
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return base64.b64encode(private).decode(), base64.b64encode(public).decode()
