"""What a real API server warns of in an object, and takes all the same: kubectl prints it. Pure.

It is said on every write, not only on the first: who labels a Secret hears of its certificate again. Pods (`pod_warnings.py`)
are the exception: hardly anybody writes them by hand, and they are written often.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from rowlock import kinds, objects
from rowlock.apiserver.validation import pod_warnings
from rowlock.apiserver.validation.ip_addresses import address_warnings
from rowlock.kinds import Kind
from rowlock.objects import Object
from rowlock.quantity import is_whole

MAX_WARNINGS = 1_000
"""Of one object: nobody reads more, and an object can be made that deserves millions."""


def warnings(kind: Kind, obj: Object, *, created: bool) -> Iterator[str]:
    """Of an object as it is about to be stored; `created`: it is made, not changed."""
    rule = pod_warnings.warnings if kind is kinds.POD and created else _RULES.get(kind)
    return islice(rule(obj), MAX_WARNINGS) if rule else iter(())


def _service_warnings(service: Object) -> Iterator[str]:
    spec = service.get("spec") or {}
    if _TOPOLOGY_HINTS in objects.annotations(service):
        yield f"annotation {_TOPOLOGY_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
    if spec.get("clusterIP") != "None":
        return
    for field in ("loadBalancerIP", "externalIPs"):
        if spec.get(field):
            yield f"spec.{field} is ignored for headless services"
    if spec.get("sessionAffinity", "None") != "None":
        yield "spec.SessionAffinity is ignored for headless services"
    for index, address in enumerate(spec.get("externalIPs") or ()):
        yield from address_warnings(address, f"spec.externalIPs[{index}]")


_TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"


def _claim_warnings(claim: Object) -> Iterator[str]:
    if _STORAGE_CLASS in objects.annotations(claim):
        yield f'metadata.annotations[{_STORAGE_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead'
    for field in ("requests", "limits"):
        size = objects.dig(claim, f"spec.resources.{field}", {}).get("storage")
        if size is not None and not is_whole(size):
            text = f'fractional byte value "{size}" is invalid, must be an integer'
            yield f"spec.resources.{field}[storage]: {text}"


_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"


def _service_account_warnings(account: Object) -> Iterator[str]:
    if _MOUNTABLE_SECRETS in objects.annotations(account):
        advice = "prefer separate namespaces to isolate access to mounted secrets"
        yield f"metadata.annotations[{_MOUNTABLE_SECRETS}]: deprecated in v1.32+; {advice}"


def _node_warnings(node: Object) -> Iterator[str]:
    if objects.dig(node, "spec.externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"


_MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"


def _secret_warnings(secret: Object) -> Iterator[str]:
    if secret.get("type") != "kubernetes.io/tls":
        return
    data: dict[str, str] = secret.get("data") or {}
    certificate, key = (base64.b64decode(data.get(name) or "") for name in ("tls.crt", "tls.key"))
    if wrong := _key_pair_problem(certificate, key):
        yield wrong


# ---------------------------------------------------------------- certificates and their keys

# A body ends at the first five dashes, so that a text full of beginnings is not read anew from each of them.
_PEM_BLOCK = re.compile(rb"-----BEGIN ([^-\n]+)-----\r?\n(?:[^-]|-(?!----))*-----END \1-----\r?\n?")


def _key_pair_problem(certificate: bytes, key: bytes) -> str:
    """Why Go would not serve TLS with them, in its words; "" when it would."""
    certificates, others = _split_pem_blocks(certificate, lambda sort: sort == "CERTIFICATE")
    if not certificates:
        if not others:
            return "tls: failed to find any PEM data in certificate input"
        if len(others) == 1 and others[0].endswith("PRIVATE KEY"):
            why = "did find a private key; PEM inputs may have been switched"
            return f"tls: failed to find certificate PEM data in certificate input, but {why}"
        return f'tls: failed to find "CERTIFICATE" PEM block in certificate input {_skipped_types_text(others)}'
    keys, others = _split_pem_blocks(key, lambda sort: sort == "PRIVATE KEY" or sort.endswith(" PRIVATE KEY"))
    if not keys:
        if not others:
            return "tls: failed to find any PEM data in key input"
        if others == ["CERTIFICATE"]:
            return "tls: found a certificate rather than a key in the PEM for the private key"
        return f'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input {_skipped_types_text(others)}'
    return _key_mismatch(certificates[0], keys[0])


def _split_pem_blocks(text: bytes, is_wanted: Callable[[str], bool]) -> tuple[list[bytes], list[str]]:
    """The PEM blocks that are wanted, and the sorts of the others."""
    matching, others = [], []
    for block in _PEM_BLOCK.finditer(text):
        sort = block[1].decode(errors="replace")
        if is_wanted(sort):
            matching.append(block[0])
        else:
            others.append(sort)
    return matching, others


def _skipped_types_text(sorts: list[str]) -> str:
    return f"after skipping PEM blocks of the following types: [{' '.join(sorts)}]"


def _key_mismatch(certificate: bytes, key: bytes) -> str:
    from cryptography import x509  # here: a server that never sees a TLS Secret does not load it for this
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        public = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError:
        return "x509: malformed certificate"
    except UnsupportedAlgorithm:
        return "tls: unknown public key algorithm"
    try:
        private: Any = load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: one that is locked with a password
        return "tls: failed to parse private key"
    if type(private) is not type(public):
        return "tls: private key type does not match public key type"
    return "" if private == public else "tls: private key does not match public key"


_RULES: dict[Kind, Callable[[Object], Iterator[str]]] = {
    kinds.SERVICE: _service_warnings,
    kinds.PERSISTENT_VOLUME_CLAIM: _claim_warnings,
    kinds.SERVICE_ACCOUNT: _service_account_warnings,
    kinds.SECRET: _secret_warnings,
    kinds.NODE: _node_warnings,
}
