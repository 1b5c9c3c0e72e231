"""Builds requests in the form of the contract, for tests and warming up."""

import json
from types import SimpleNamespace
from typing import Any

from .request import Object


def request_for(operation: str, object: Object | None, old_object: Object | None = None) -> Any:
    """Builds a request for an operation on an object, with the kind, name and namespace of the object."""
    whole = object or old_object or {}
    group, _, version = whole.get("apiVersion", "v1").rpartition("/")
    kind, metadata = whole.get("kind", ""), whole.get("metadata") or {}

    def text(value: Object | None) -> str | None:
        return None if value is None else json.dumps(value)

    return SimpleNamespace(
        uid="00000000-0000-0000-0000-000000000000",
        operation=SimpleNamespace(name=operation.upper()),
        kind=SimpleNamespace(group=group, version=version, kind=kind),
        resource=SimpleNamespace(group=group, version=version, resource=f"{kind.lower()}s"),
        subresource=None,
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace"),
        user=SimpleNamespace(username="", uid="", groups=[], extra=[]),
        object=text(object),
        old_object=text(old_object),
        options=None,
        dry_run=False,
    )
