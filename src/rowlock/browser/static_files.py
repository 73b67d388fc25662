"""The built files of the web UI: read once, served by exact name from memory.

They lie in `static/` beside this module, made by `make ui` from the folder `ui/` of the repository, and come in the wheel.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The file types that are served."""


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file and the headers that it is served with."""

    content: bytes
    media_type: str
    etag: str


def load_files(folder: Path = STATIC) -> dict[str, StaticFile]:
    """Path below the folder → file. Empty if nothing was built."""
    files: dict[str, StaticFile] = {}
    for path in sorted(folder.rglob("*")):
        media_type = _MEDIA_TYPES.get(path.suffix)
        if media_type and path.is_file():
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:24]
            files[path.relative_to(folder).as_posix()] = StaticFile(content, media_type, f'"{digest}"')
    return files


class StaticFiles:
    """Answers requests for the built files. Unknown paths get 404, never the page, since HTML in place of a script is confusing."""

    def __init__(self, files: dict[str, StaticFile]) -> None:
        self._files = files

    def answer(self, request: Request, path: str) -> Response:
        """`path` begins with a slash; "/" is the page."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse(
                f"{request.method} is not for files: GET reads them.\n", 405, headers={"allow": "GET, HEAD"}
            )
        file = self._files.get(path[1:] or INDEX)
        if file is None:
            return PlainTextResponse("There is no such file.\n", 404)
        headers = {"etag": file.etag, "cache-control": "no-cache"}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)
