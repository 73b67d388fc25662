"""What a pull from a registry needs, and what is said of it: pure.

An image's name says which registry has it; the pod's secrets and the user's own `~/.docker/config.json` say who asks
there (the most specific entry first, as on a Kubernetes node). The engine's answer is a stream of JSON lines whose last
one may be an error although the status was 200. Passwords pass through here and are never shown: what holds one has no
`repr`.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

from rowlock.objects import Object

HUB = "docker.io"
"""The registry of names that say none."""
_HUB_TOO = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
JSON, OLD = ".dockerconfigjson", ".dockercfg"
KEYS = {"kubernetes.io/dockerconfigjson": JSON, "kubernetes.io/dockercfg": OLD}
"""Types of secrets → the key of their data that holds the credentials."""

Auths = Mapping[str, Mapping[str, Any]]
"""Registry → its entry, as Docker's `config.json` has them."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Who asks a registry: the header for the engine. Nobody in particular when it is empty."""

    header: str = field(default="", repr=False)


NOBODY = Credential()


def place(name: str) -> tuple[str, str]:
    """(registry, repository) of a normalised image name: `host:5000/a/b@sha256:…` is (`host:5000`, `a/b`)."""
    path = name.partition("@")[0]
    head, slash, rest = path.partition("/")
    if not slash or not ("." in head or ":" in head or head == "localhost"):
        host, rest = HUB, path
    else:
        host = head
    before, slash, last = rest.rpartition("/")
    repository = before + slash + last.partition(":")[0]
    return host, f"library/{repository}" if host == HUB and "/" not in repository else repository


def request(name: str) -> str:
    """The path that asks an engine to pull a normalised name. A tag always: without one it would pull them all."""
    head, at, digest = name.partition("@")
    image, _, tag = (head, at, digest) if at else name.rpartition(":")
    return f"/images/create?fromImage={quote(image, safe='')}&tag={quote(tag, safe='')}"


# ---------------------------------------------------------------- who asks


def of_secret(secret: Object) -> Auths | None:
    """The credentials in a Secret; None when there are none to be read."""
    key = KEYS.get(str(secret.get("type") or ""), "")
    try:
        found = json.loads(base64.b64decode((secret.get("data") or {})[key]))
        return _auths(found["auths"] if key == JSON else found)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def of_file(text: str) -> Auths:
    """Those of the user's own `config.json`; a file that is no such thing has none."""
    try:
        return _auths(json.loads(text).get("auths") or {})
    except (ValueError, TypeError, AttributeError):
        return {}


def _auths(given: Mapping[str, Any]) -> Auths:
    return {str(key): entry for key, entry in given.items() if isinstance(entry, Mapping)}


def credentials(name: str, known: Sequence[Auths]) -> tuple[Credential, ...]:
    """Who may ask for the image, in the order to try: of each source the longest entry first; nobody where there is none."""
    found: list[Credential] = []
    for auths in known:
        for key in sorted((k for k in auths if _matches(k, name)), key=lambda k: (len(_split(k)[1]), k), reverse=True):
            made = _credential(auths[key], key)
            if made is not None and made not in found:
                found.append(made)
    return tuple(found) or (NOBODY,)


def _split(key: str) -> tuple[str, str]:
    """Host and path of an entry, which may be written as a URL: `https://index.docker.io/v1/`."""
    host, _, path = key.rpartition("://")[2].partition("/")
    path = path.strip("/")
    host = HUB if host.lower() in _HUB_TOO else host.lower()
    return host, "" if path in ("v1", "v2") else path


def _matches(key: str, name: str) -> bool:
    (host, path), (registry, repository) = _split(key), place(name)
    (wanted, _, port), (have, _, its_port) = host.partition(":"), registry.partition(":")
    labels, its_labels = wanted.split("."), have.split(".")
    if port != its_port or len(labels) != len(its_labels):
        return False
    if not all(fnmatchcase(label, glob) for label, glob in zip(its_labels, labels, strict=True)):
        return False
    return not path or f"{repository}/".startswith(f"{path}/")


def _credential(entry: Mapping[str, Any], key: str) -> Credential | None:
    """The engine's header, `X-Registry-Auth`; None for an entry that holds nothing (a credential helper has it)."""
    user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(str(entry["auth"])).decode().rstrip("\0").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
    said = {"username": user, "password": password, "serveraddress": key}
    said |= {k: str(entry[k]) for k in ("identitytoken", "registrytoken") if entry.get(k)}
    if not user and len(said) == 3:
        return None
    return Credential(base64.urlsafe_b64encode(json.dumps(said).encode()).decode())


# ---------------------------------------------------------------- what is said


@dataclass(slots=True)
class Answer:
    """What the engine has said of a pull so far; `error` is its own sentence once there is one."""

    error: str = ""
    _rest: bytes = b""

    def feed(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._read(lines)

    def end(self) -> str:
        """Nothing more will come; the error, "" when there was none."""
        self._read([self._rest])
        self._rest = b""
        return self.error

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict) and (said.get("error") or said.get("errorDetail")):
                detail = said.get("errorDetail")
                better = detail.get("message") if isinstance(detail, dict) else ""
                self.error = str(better or said.get("error") or "the pull failed").strip()


def took(seconds: float) -> str:
    """A duration as a kubelet writes it, cut to milliseconds: 87ms, 2.345s, 1m2.5s."""
    thousandths = int(seconds * 1000)
    if thousandths < 1000:
        return f"{thousandths}ms" if thousandths else "0s"
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + text


def pulled(reference: str, seconds: float, waited: float, size: int) -> str:
    """The sentence of the event Pulled."""
    times = f"{took(seconds)} ({took(waited)} including waiting)"
    return f'Successfully pulled image "{reference}" in {times}. Image size: {size} bytes.'


def missing_secrets(names: Sequence[str]) -> str:
    """The sentence of the event FailedToRetrieveImagePullSecret."""
    which = ", ".join(names)
    return f"Unable to retrieve some image pull secrets ({which}); attempting to pull the image may not succeed."
