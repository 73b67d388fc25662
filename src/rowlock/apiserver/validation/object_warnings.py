"""Warnings about objects that are accepted, as from a real API server; kubectl prints them. Pure.

Every write repeats them, not only the first: labelling a Secret repeats the warning about its certificate. Pods (`pod_warnings.py`)
are the exception: they are seldom written by hand, but updated often. The rows are in `rules.txt`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any

from rowlock import kinds, objects
from rowlock.apiserver.schema import types
from rowlock.apiserver.validation.pod_warnings import MAX_WARNINGS, unusual_address, warning
from rowlock.apiserver.validation.rules import Scope, rows_name, rule, validate
from rowlock.documents.field_errors import Causes
from rowlock.kinds import Kind
from rowlock.objects import Object


def warnings(kind: Kind, obj: Object, *, created: bool) -> list[str]:
    """The warnings about an object that is about to be stored; `created`: it is new."""
    if kind.custom or (kind is kinds.POD and not created):
        return []
    name = rows_name(types.type_name(kind.group, kind.version, kind.name))
    causes = validate(f"{name} new_warnings", obj) if created else []
    causes = (causes + validate(f"{name} warnings", obj))[:MAX_WARNINGS]
    return [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]


@rule
def service_warnings(service: Object, scope: Scope) -> Causes:
    spec = service.get("spec") or {}
    if _TOPOLOGY_HINTS in objects.annotations(service):
        new = "please use service.kubernetes.io/topology-mode instead"
        yield warning("", f"annotation {_TOPOLOGY_HINTS} is deprecated, {new}")
    if spec.get("clusterIP") != "None":
        return
    for field in ("loadBalancerIP", "externalIPs"):
        if spec.get(field):
            yield warning("", f"spec.{field} is ignored for headless services")
    if spec.get("sessionAffinity", "None") != "None":
        yield warning("", "spec.SessionAffinity is ignored for headless services")
    for index, address in enumerate(spec.get("externalIPs") or ()):
        for cause in unusual_address(address, scope):
            yield warning(f".spec.externalIPs[{index}]", cause.message)


_TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
_MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"


@rule
def old_storage_class(claim: Object, _: Scope) -> Causes:
    if _STORAGE_CLASS in objects.annotations(claim):
        text = 'deprecated since v1.8; use "storageClassName" attribute instead'
        yield warning(f".metadata.annotations[{_STORAGE_CLASS}]", text)


@rule
def mountable_secrets(account: Object, _: Scope) -> Causes:
    if _MOUNTABLE_SECRETS in objects.annotations(account):
        text = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        yield warning(f".metadata.annotations[{_MOUNTABLE_SECRETS}]", text)


@rule
def key_pair(secret: Object, _: Scope) -> Causes:
    if secret.get("type") == "kubernetes.io/tls":
        data: dict[str, str] = secret.get("data") or {}
        certificate, key = (base64.b64decode(data.get(name) or "") for name in ("tls.crt", "tls.key"))
        if wrong := _key_pair_problem(certificate, key):
            yield warning("", wrong)


# ---------------------------------------------------------------- certificates and their keys

# A body ends at the first five dashes, so that matching a text full of BEGIN lines takes linear time.
_PEM_BLOCK = re.compile(rb"-----BEGIN ([^-\n]+)-----\r?\n(?:[^-]|-(?!----))*-----END \1-----\r?\n?")


def _key_pair_problem(certificate: bytes, key: bytes) -> str:
    """Go's error message for an invalid certificate and key; "" if they are a valid pair."""
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
    """The PEM blocks of the wanted types, and the types of the others."""
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
    from cryptography import x509  # late: only needed once a TLS Secret is written
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
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: the key needs a password
        return "tls: failed to parse private key"
    if type(private) is not type(public):
        return "tls: private key type does not match public key type"
    return "" if private == public else "tls: private key does not match public key"
