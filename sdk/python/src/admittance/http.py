"""HTTP requests to the origins that the stage grants under ``allow.http``."""

import json
from dataclasses import dataclass
from typing import Any, Mapping

from .host import HostError, attempt

try:
    from wit_world.imports import http as _host  # type: ignore[import-not-found]
except ImportError:
    _host = None


class HttpError(HostError):
    """A failed request, of the kind ``unavailable``, ``invalid``, ``unreachable``, ``timeout`` or ``too-large``."""


@dataclass(frozen=True)
class HttpResponse:
    """A response, whatever its status is. Redirects are not followed."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Returns the first header of this name. The case of the name does not matter."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


def send(
    url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: str | bytes = b""
) -> HttpResponse:
    """Sends a request, and waits for the complete response."""
    # Outside of the sandbox, no request is sent.
    if _host is None:
        raise HttpError("unavailable", "requests need the sandbox")
    content = body.encode() if isinstance(body, str) else body
    request = _host.Request(method, url, list((headers or {}).items()), content)
    response = attempt(HttpError, lambda: _host.send(request))
    return HttpResponse(response.status, response.headers, bytes(response.body))
