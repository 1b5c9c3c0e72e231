"""Requests."""

import json
from functools import cached_property
from typing import Any, Literal, Protocol

Object = dict[str, Any]


class GroupVersionKind(Protocol):
    """The type of an object, from its ``apiVersion`` and ``kind``."""

    group: str
    version: str
    kind: str


class GroupVersionResource(Protocol):
    """The resource type, as in the path of a request."""

    group: str
    version: str
    resource: str


class UserInfo(Protocol):
    """The user who sent the request. All fields are empty if the control plane does not provide them."""

    username: str
    uid: str
    groups: list[str]
    extra: list[tuple[str, list[str]]]


class Request:
    """One admission request. The objects are parsed when they are first read."""

    #: Identifies the request in logs and traces.
    uid: str
    operation: Literal["create", "update", "delete", "connect"]
    kind: GroupVersionKind
    resource: GroupVersionResource
    #: The subresource, such as ``status`` or ``scale``; None for the resource itself.
    subresource: str | None
    #: The name; empty if the control plane has not generated it yet.
    name: str
    #: The namespace; None for a cluster-scoped resource.
    namespace: str | None
    user: UserInfo
    #: Whether this is a dry run, whose result is not stored: a plugin must not cause side effects.
    dry_run: bool
    #: The JSON text of the object.
    object_text: str | None

    def __init__(self, contract: Any) -> None:
        self._contract = contract
        self.uid = contract.uid
        self.operation = contract.operation.name.lower()
        self.kind = contract.kind
        self.resource = contract.resource
        self.subresource = contract.subresource
        self.name = contract.name
        self.namespace = contract.namespace
        self.user = contract.user
        self.dry_run = contract.dry_run
        self.object_text = contract.object

    @cached_property
    def object(self) -> Object | None:
        """The object, as changed by the previous stages; None for a deletion."""
        return _parsed(self.object_text)

    @cached_property
    def old_object(self) -> Object | None:
        """The object as it is stored now."""
        return _parsed(self._contract.old_object)

    @cached_property
    def options(self) -> Object | None:
        """The options of the operation."""
        return _parsed(self._contract.options)


def _parsed(text: str | None) -> Object | None:
    if text is None:
        return None
    object: Object = json.loads(text)
    return object
