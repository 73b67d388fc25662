"""A registry on loopback that stands in for docker.io on the node of a test cluster: images of one small file and a program."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG, LAYER = "application/vnd.docker.container.image.v1+json", "application/vnd.docker.image.rootfs.diff.tar"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def describe(media: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media, "size": len(content), "digest": digest(content)}


def make_layer() -> bytes:
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("tmp/.here"), io.BytesIO(b""))
    return text.getvalue()


class _Asked(BaseHTTPRequestHandler):
    """`/v2/NAME/manifests/TAG` and `/v2/NAME/blobs/DIGEST`."""

    protocol_version = "HTTP/1.1"
    contents: Mapping[str, tuple[str, bytes]] = {}

    def do_GET(self) -> None:
        found = self.contents.get(self.path.partition("?")[0])
        media, content = found or ("application/json", b'{"errors":[]}')
        self.send_response(200 if found else 404)
        for header, value in (
            ("Content-Type", media),
            ("Content-Length", str(len(content))),
            ("Docker-Content-Digest", digest(content)),
        ):
            self.send_header(header, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@contextmanager
def played_registry(directory: Path, images: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """While it lasts the node of the cluster in this directory pulls what is on docker.io from here. Repository → program."""
    served: dict[str, tuple[str, bytes]] = {"/v2/": ("application/json", b"{}")}
    for name, program in images.items():
        layer = make_layer()
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Entrypoint": list(program), "Env": [f"PATH={os.defpath}"]},
                "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
            }
        ).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": describe(CONFIG, config),
                "layers": [describe(LAYER, layer)],
            }
        ).encode()
        for media, content in ((CONFIG, config), (LAYER, layer)):
            served[f"/v2/{name}/blobs/{digest(content)}"] = media, content
        for reference in ("latest", digest(manifest)):
            served[f"/v2/{name}/manifests/{reference}"] = MANIFEST, manifest

    class Played(_Asked):
        """With these contents."""

        contents = served

    server = ThreadingHTTPServer(("127.0.0.1", 0), Played)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hosts = directory / "registries" / "docker.io" / "hosts.toml"
    hosts.parent.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{server.server_port}"
    hosts.write_text(f'server = "{url}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n')
    try:
        yield
    finally:
        hosts.unlink()
        server.shutdown()
        server.server_close()
        thread.join(200)
