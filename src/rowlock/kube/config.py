"""The address of the real cluster, and our credentials there.

Kubeconfig files (several merged, contexts), exec plugins, client certificates, service accounts, proxies and TLS names
are read by kr8s: it is async, maintained, and supports more than lightkube (which lacks current exec plugins and proxies) at a third of
kubernetes_asyncio's memory. This module adds token files that rotate, and deletes the key files that kr8s leaves in the temporary
directory. Only `connection.py` calls this.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kr8s._auth import KubeAuth  # the public factory asks the server for its version first, and caches per thread

from rowlock.errors import Unauthorized

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PLUGIN_PATIENCE_S = 60.0
"""Timeout of an exec plugin in seconds: some call a remote service, and none may block all requests for ever."""
_DATA_FILES = (
    ("client-key-data", "client_key_file"),
    ("client-certificate-data", "client_cert_file"),
    ("certificate-authority-data", "server_ca_file"),
)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """An API server and the credentials for it. `tls`: a context, or True for the system's CAs."""

    server: str
    tls: ssl.SSLContext | bool
    token: str = ""
    proxy: str | None = None
    tls_name: str | None = None
    namespace: str = "default"
    identity: str = ""
    """Digest of the certificates in `tls`; while it stays equal, connections are reused."""


class Credentials:
    """Makes `ClientConfig`s. After a 401, `renew` reads the files and runs the exec plugin again."""

    def __init__(
        self,
        kubeconfig: str | Path | Mapping[str, Any] | None = None,
        context: str | None = None,
        *,
        anonymous: bool = False,
    ) -> None:
        """`anonymous`: use address and CA, but no credentials of the kubeconfig. An API server prefers a client
        certificate to the token of a request, so requests of other users must not have one."""
        source = dict(kubeconfig) if isinstance(kubeconfig, Mapping) else kubeconfig
        self._auth = KubeAuth(kubeconfig=source, context=context)  # type: ignore[arg-type]  # kr8s takes dicts too, its type does not say so
        self._context, self._anonymous, self._had_token = context, anonymous, False
        self._source = str(kubeconfig) if isinstance(kubeconfig, str | Path) else os.environ.get("KUBECONFIG", "")

    async def renew(self) -> ClientConfig:
        """The current configuration. Raises Unauthorized, with advice, if there are no usable credentials."""
        try:
            await self._load()
            identity = self._identity()  # before TLS: its error names the file, and a later change counts as new
            tls = await self._load_tls()
            token = "" if self._anonymous else (self._rotating_token() or self._auth.token or "").strip()
        except (ValueError, LookupError, RuntimeError, OSError, TypeError, AttributeError, yaml.YAMLError) as error:
            raise Unauthorized(
                f"the credentials of the cluster do not work: {_error_message(error)}; check {self.source}"
            ) from error
        finally:
            self._delete_key_files()
        if self._had_token and not token:  # the kubeconfig is probably being rewritten
            raise Unauthorized(f"the token is gone from {self.source}: write one into it")
        self._had_token = bool(token)
        return ClientConfig(
            server=self._auth.server.rstrip("/"),
            tls=tls,
            token=token,
            proxy=self._auth.proxy,
            tls_name=self._auth.tls_server_name,
            namespace=self._auth.namespace,
            identity=identity,
        )

    async def _load_tls(self) -> ssl.SSLContext | bool:
        auth = self._auth
        certificate = auth.client_key_file, auth.client_cert_file
        if self._anonymous:
            auth.client_key_file = auth.client_cert_file = None
        try:
            tls: ssl.SSLContext | bool = await auth.ssl_context()  # type: ignore[no-untyped-call]  # kr8s leaves it untyped
        finally:
            auth.client_key_file, auth.client_cert_file = certificate
        return tls

    async def _load(self) -> None:
        """Read the files and run the exec plugin, which is killed after `PLUGIN_PATIENCE_S` or when this is cancelled. Raises RuntimeError
        on timeout."""
        loading = asyncio.create_task(self._auth.reauthenticate())
        try:
            await asyncio.wait({loading}, timeout=PLUGIN_PATIENCE_S)
        finally:
            while not loading.done():
                # After the first cancel anyio waits for the program, after the second it kills it.
                loading.cancel()
                await asyncio.wait({loading}, timeout=0.05)
        if loading.cancelled():
            raise RuntimeError(f"{self._plugin or 'what reads them'} had not ended after {PLUGIN_PATIENCE_S:.0f} s")
        loading.result()

    @property
    def source(self) -> str:
        """The kubeconfig and its context, for messages."""
        source = self._source or "~/.kube/config"
        return f"the kubeconfig {source}" + (f", context {self._context}" if self._context else "")

    @property
    def has_plugin(self) -> bool:
        """Whether an exec plugin provides the credentials; each `renew` runs it."""
        return bool(self._plugin)

    @property
    def advice(self) -> str:
        """How to provide new credentials when the cluster refuses the current ones, as a part of a sentence."""
        if self._plugin:
            return f"{self._plugin}, the program of {self.source}, gives them: log in with it again"
        if self._user.get("tokenFile"):
            return f"write a new token into {self._token_path}, which is read again"
        if (files := self._certificate_files) is not None:
            return f"write a new certificate and key into {files[0]} and {files[1]}, which are read again"
        return f"write new ones into {self.source}, which is read again"

    @property
    def _user(self) -> Mapping[str, Any]:
        user = self._auth._user
        return user if isinstance(user, Mapping) else {}

    @property
    def _plugin(self) -> str:
        program = self._user.get("exec")
        return str(program.get("command", "")) if isinstance(program, Mapping) else ""

    @property
    def _token_path(self) -> Path:
        """The path of the user's `tokenFile`."""
        return self._path_of("tokenFile")

    @property
    def _certificate_files(self) -> tuple[Path, Path] | None:
        """The paths of the client certificate and its key; None if they are inlined in the kubeconfig, or a token takes precedence."""
        user = self._user
        if user.get("token") or not (user.get("client-certificate") and user.get("client-key")):
            return None
        return self._path_of("client-certificate"), self._path_of("client-key")

    def _path_of(self, field: str) -> Path:
        """The path of a file that the user entry names; a relative one starts at the kubeconfig's directory."""
        path = Path(self._user[field])
        return path if path.is_absolute() else Path(self._auth.kubeconfig.get_path(self._context)).parent / path

    def _rotating_token(self) -> str:
        """The content of the user's `tokenFile`, which takes precedence over its `token`, as in kubectl. An empty file is being rewritten:
        a request without a token would be anonymous, and get a 403 instead of the 401 that triggers a renewal."""
        if not self._auth._user.get("tokenFile"):  # fails without a user, instead of using an old token
            return ""
        path = self._token_path
        try:
            token = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Unauthorized(f"the kubeconfig's tokenFile cannot be read: {error}") from error
        if not token:
            raise Unauthorized(f"the kubeconfig's tokenFile {path} is empty: write a token into it")
        return token

    def _identity(self) -> str:
        digest = hashlib.sha256()
        for _, attribute in _DATA_FILES:
            file = getattr(self._auth, attribute)
            digest.update(Path(file).read_bytes() if file else b"-")
        return digest.hexdigest()

    def _delete_key_files(self) -> None:
        """Delete the temporary files into which kr8s writes inlined keys for OpenSSL. They are not needed once loaded."""
        inlined = {key for part in (self._user, self._auth._cluster) if isinstance(part, Mapping) for key in part}
        scratch = Path(tempfile.gettempdir())
        for name, attribute in _DATA_FILES:
            file = getattr(self._auth, attribute)
            if name in inlined and file and Path(file).parent == scratch:
                with contextlib.suppress(OSError):
                    Path(file).unlink()


def _error_message(error: BaseException) -> str:
    """What is wrong with the files, for a message. An incomplete kubeconfig makes kr8s raise errors such as TypeError."""
    if isinstance(error, yaml.YAMLError):
        return f"the kubeconfig is not YAML: {' '.join(str(error).split())}"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing"
    return "it is not a whole kubeconfig" if isinstance(error, TypeError | AttributeError | IndexError) else str(error)
