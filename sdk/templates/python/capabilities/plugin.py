"""Refuses objects whose label differs from their namespace's."""

from dataclasses import dataclass
from typing import Any

from admittance import Plugin, Request, Response, allow, deny, setting
from admittance.cluster import get


@dataclass
class Settings:
    """The label that must be the same as in the namespace."""

    label: str = setting("The label's key.", min_length=1)


def label_of(object: dict[str, Any] | None, label: str) -> str | None:
    # Some APIs have objects without metadata, or with `labels: null`.
    metadata = (object or {}).get("metadata") or {}
    return (metadata.get("labels") or {}).get(label)


def admit(request: Request, settings: Settings) -> Response:
    if request.object is None or not request.namespace:
        return allow()
    # If a lookup fails, the stage fails, and its `failurePolicy` decides.
    namespace = get("v1", "Namespace", request.namespace)
    label = settings.label
    expected = label_of(namespace, label)
    if expected is None or label_of(request.object, label) == expected:
        return allow()
    return deny(f"metadata.labels: `{label}` must be `{expected}`, as in the namespace `{request.namespace}`")


plugin = Plugin(
    name="{{name}}",
    version="0.1.0",
    summary="Refuses objects whose label differs from their namespace's.",
    resources=["v1/pods", "apps/v1/deployments"],
    capabilities={"cluster": ["v1/Namespace"]},
    settings=Settings,
    admit=admit,
)

WitWorld = plugin.component()
