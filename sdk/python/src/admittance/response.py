"""Responses: a verdict with warnings and audit annotations."""

import json
from dataclasses import dataclass, field
from typing import Any, Callable

from .patch import Operation, Patch, difference
from .request import Object, Request


@dataclass
class Denial:
    """The denial of a request."""

    message: str
    code: int = 403
    reason: str = "Forbidden"


@dataclass
class Response:
    """A response. `allow`, `deny`, `patch`, `replace` and `mutate` create one."""

    denial: Denial | None = None
    #: The operations of the patch; empty if nothing changes.
    patch: list[Operation] = field(default_factory=list)
    #: The object that replaces the object of the request.
    replacement: Object | None = None
    warnings: list[str] = field(default_factory=list)
    audit_annotations: dict[str, str] = field(default_factory=dict)

    @property
    def allowed(self) -> bool:
        return self.denial is None

    def warn(self, message: str) -> "Response":
        """Adds a warning for the client, who also gets it if the request is allowed."""
        self.warnings.append(message)
        return self

    def audit(self, key: str, value: object) -> "Response":
        """Adds an audit annotation."""
        self.audit_annotations[key] = str(value)
        return self


def allow() -> Response:
    """Allows the request unchanged."""
    return Response()


def deny(message: str, *, code: int = 403, reason: str = "Forbidden") -> Response:
    """Denies the request. A good message says where in the object, what is wrong, and how to fix it."""
    return Response(denial=Denial(message, code, reason))


def patch(changes: Patch | list[Operation]) -> Response:
    """Allows the request with these changes. An empty patch changes nothing."""
    return Response(patch=changes.operations if isinstance(changes, Patch) else changes)


def replace(object: Object) -> Response:
    """Allows the request with this complete object instead of the object of the request."""
    return Response(replacement=object)


def mutate(request: Request, change: Callable[[Any], None]) -> Response:
    """Allows the request with the object as ``change`` leaves it. The response is a patch of the differences."""
    if request.object_text is None:
        return allow()
    object = json.loads(request.object_text)
    change(object)
    return patch(difference(request.object, object))
