"""What a pull from a registry needs, and the messages about it: pure.

An image's name determines the registry; the pod's secrets and the user's own `~/.docker/config.json` give the credentials
(the most specific entry first, as on a Kubernetes node). The engine's answer is a stream of JSON lines whose last one may be
an error although the status was 200. Passwords pass through here and are never shown: what holds one has no
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

DOCKER_HUB = "docker.io"
"""The registry of names without one."""
_DOCKER_HUB_ALIASES = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
DOCKER_CONFIG_JSON_KEY, DOCKER_CFG_KEY = ".dockerconfigjson", ".dockercfg"
SECRET_DATA_KEYS = {"kubernetes.io/dockerconfigjson": DOCKER_CONFIG_JSON_KEY, "kubernetes.io/dockercfg": DOCKER_CFG_KEY}
"""Types of secrets → the key of their data that holds the credentials."""

Auths = Mapping[str, Mapping[str, Any]]
"""Registry → its entry, as Docker's `config.json` has them."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Credentials for a registry: the header for the engine. Empty = anonymous."""

    header: str = field(default="", repr=False)


ANONYMOUS = Credential()


def parse_image_name(name: str) -> tuple[str, str]:
    """(registry, repository) of a normalised image name: `host:5000/a/b@sha256:…` is (`host:5000`, `a/b`)."""
    path = name.partition("@")[0]
    head, slash, rest = path.partition("/")
    if not slash or not ("." in head or ":" in head or head == "localhost"):
        host, rest = DOCKER_HUB, path
    else:
        host = head
    repository_path, slash, last = rest.rpartition("/")
    repository = repository_path + slash + last.partition(":")[0]
    return host, f"library/{repository}" if host == DOCKER_HUB and "/" not in repository else repository


def pull_path(name: str) -> str:
    """The request path for pulling a normalised name. It always has a tag: without one the engine would pull all tags."""
    image_name, at, digest = name.partition("@")
    image, _, tag = (image_name, at, digest) if at else name.rpartition(":")
    return f"/images/create?fromImage={quote(image, safe='')}&tag={quote(tag, safe='')}"


# ---------------------------------------------------------------- credentials


def auths_of_secret(secret: Object) -> Auths | None:
    """The credentials in a Secret; None = it has none that can be read."""
    key = SECRET_DATA_KEYS.get(str(secret.get("type") or ""), "")
    try:
        config = json.loads(base64.b64decode((secret.get("data") or {})[key]))
        return _valid_auths(config["auths"] if key == DOCKER_CONFIG_JSON_KEY else config)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def auths_of_config_file(text: str) -> Auths:
    """The credentials in the user's own `config.json`; {} for any other file."""
    try:
        return _valid_auths(json.loads(text).get("auths") or {})
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _valid_auths(entries: Mapping[str, Any]) -> Auths:
    return {str(key): entry for key, entry in entries.items() if isinstance(entry, Mapping)}


def lookup_credentials(name: str, sources: Sequence[Auths]) -> tuple[Credential, ...]:
    """The credentials to try for the image, in order: of each source the longest entry first; ANONYMOUS if there is none."""
    candidates: list[Credential] = []
    for auths in sources:
        for key in sorted(
            (k for k in auths if _key_matches(k, name)), key=lambda k: (len(_split_key(k)[1]), k), reverse=True
        ):
            candidate = _parse_credential(auths[key], key)
            if candidate is not None and candidate not in candidates:
                candidates.append(candidate)
    return tuple(candidates) or (ANONYMOUS,)


def _split_key(key: str) -> tuple[str, str]:
    """Host and path of an entry, which may be written as a URL: `https://index.docker.io/v1/`."""
    host, _, path = key.rpartition("://")[2].partition("/")
    path = path.strip("/")
    host = DOCKER_HUB if host.lower() in _DOCKER_HUB_ALIASES else host.lower()
    return host, "" if path in ("v1", "v2") else path


def _key_matches(key: str, name: str) -> bool:
    (host, path), (registry, repository) = _split_key(key), parse_image_name(name)
    (key_host, _, port), (image_host, _, its_port) = host.partition(":"), registry.partition(":")
    labels, its_labels = key_host.split("."), image_host.split(".")
    if port != its_port or len(labels) != len(its_labels):
        return False
    if not all(fnmatchcase(label, glob) for label, glob in zip(its_labels, labels, strict=True)):
        return False
    return not path or f"{repository}/".startswith(f"{path}/")


def _parse_credential(entry: Mapping[str, Any], key: str) -> Credential | None:
    """The credential of an entry, as the header `X-Registry-Auth`; None for an empty entry (a credential helper has it)."""
    user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if entry.get("auth"):
        try:
            user, _, password = base64.b64decode(str(entry["auth"])).decode().rstrip("\0").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
    auth_config = {"username": user, "password": password, "serveraddress": key}
    auth_config |= {k: str(entry[k]) for k in ("identitytoken", "registrytoken") if entry.get(k)}
    if not user and len(auth_config) == 3:
        return None
    return Credential(base64.urlsafe_b64encode(json.dumps(auth_config).encode()).decode())


# ---------------------------------------------------------------- messages


@dataclass(slots=True)
class PullAnswer:
    """The engine's answer to a pull so far; `error` is its error message, if any."""

    error: str = ""
    _partial_line: bytes = b""

    def feed(self, chunk: bytes) -> None:
        *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
        self._read_lines(lines)

    def finish(self) -> str:
        """Ends the answer. Returns the error, "" = none."""
        self._read_lines([self._partial_line])
        self._partial_line = b""
        return self.error

    def _read_lines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict) and (message.get("error") or message.get("errorDetail")):
                detail = message.get("errorDetail")
                detail_message = detail.get("message") if isinstance(detail, dict) else ""
                self.error = str(detail_message or message.get("error") or "the pull failed").strip()


def format_duration(seconds: float) -> str:
    """A duration as a kubelet writes it, cut to milliseconds: 87ms, 2.345s, 1m2.5s."""
    thousandths = int(seconds * 1000)
    if thousandths < 1000:
        return f"{thousandths}ms" if thousandths else "0s"
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + text


def pulled_message(reference: str, seconds: float, total: float, size: int) -> str:
    """The message of the event Pulled."""
    times = f"{format_duration(seconds)} ({format_duration(total)} including waiting)"
    return f'Successfully pulled image "{reference}" in {times}. Image size: {size} bytes.'


def missing_secrets_message(names: Sequence[str]) -> str:
    """The message of the event FailedToRetrieveImagePullSecret."""
    which = ", ".join(names)
    return f"Unable to retrieve some image pull secrets ({which}); attempting to pull the image may not succeed."
