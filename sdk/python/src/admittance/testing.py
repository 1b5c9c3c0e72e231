"""Native tests: calls a plugin without WebAssembly.

    configured = configure(plugin, {"label": "team"})
    response = configured.admit(create({"apiVersion": "v1", "kind": "Pod", ...}))
    assert response.denial is not None
"""

import json
from dataclasses import dataclass
from typing import Any, Mapping

from .plugin import Plugin
from .request import Object
from .response import Response
from .sample import request_for

__all__ = ["Configured", "configure", "connect", "create", "delete", "update"]


def create(object: Object) -> Any:
    """Builds the request that creates an object, with the kind, name and namespace of the object."""
    return request_for("create", object)


def update(old_object: Object, object: Object) -> Any:
    return request_for("update", object, old_object)


def delete(old_object: Object) -> Any:
    return request_for("delete", None, old_object)


def connect(options: Object) -> Any:
    return request_for("connect", options)


@dataclass
class Configured:
    """A configured plugin."""

    plugin: Plugin
    state: Any

    def admit(self, request: Any) -> Response:
        return self.plugin.respond(request, self.state)


def configure(plugin: Plugin, settings: Mapping[str, Any] | None = None) -> Configured:
    """Configures a plugin. Raises `SettingsErrors`."""
    return Configured(plugin, plugin.configured(json.dumps(settings or {})))
