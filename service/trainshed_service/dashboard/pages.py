"""What all pages share: the templates, the static files, and rendering with an ETag, which makes polling cheap.

Invariants: whatever comes from users is escaped by the templates (autoescape, and `tojson` nowhere); a page that has
not changed is answered 304 to a browser that polls it.
"""

from __future__ import annotations

import hashlib
import mimetypes
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from trainshed_service.dashboard import words
from trainshed_service.wire.errors import ApiError

_CHARSET = {"text/javascript": "; charset=utf-8", "text/css": "; charset=utf-8"}
_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Pages:
    """Built once: templates compiled, static files in memory."""

    def __init__(self) -> None:
        folder = files("trainshed_service.dashboard") / "static"
        self._static = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}
        digest = hashlib.sha256(b"\0".join(name.encode() + b"\0" + self._static[name] for name in sorted(self._static)))
        self.version = digest.hexdigest()[:12]
        """Part of the address of every static file: it changes with their content, so browsers keep them for good."""
        self._templates = Environment(
            loader=PackageLoader("trainshed_service.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "duration": words.duration,
            "moment": words.moment,
            "minute": words.minute,
            "iso": words.iso,
            "size": words.size,
            "number": words.number,
        }
        self._templates.globals["static"] = f"/static/{self.version}"

    def render(self, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
        return HTMLResponse(self._templates.get_template(template).render(context), status)

    def live(self, request: Request, template: str, **context: Any) -> Response:
        """`render`, or 304 where the browser has this very content."""
        page = self.render(template, **context)
        tag = tag_of(bytes(page.body))
        headers = {"etag": tag, "cache-control": "no-store"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        page.headers.update(headers)
        return page

    def static(self, version: str, name: str) -> Response:
        """A file of the style or the scripts. ApiError 404."""
        content = self._static.get(name)
        if content is None:
            raise ApiError("NotFound", "There is no such file.", 404)
        kind = _KINDS.get("." + name.rpartition(".")[2]) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        keep = "public, max-age=31536000, immutable" if version == self.version else "no-cache"
        return Response(content, headers={"content-type": kind + _CHARSET.get(kind, ""), "cache-control": keep})


def tag_of(page: bytes) -> str:
    """The ETag of a page."""
    return '"' + hashlib.sha256(page).hexdigest()[:32] + '"'
