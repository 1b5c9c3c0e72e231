"""Adds a label to objects without it."""

from dataclasses import dataclass
from typing import Any

from admittance import Plugin, Request, Response, allow, mutate, setting


@dataclass
class Settings:
    """The label that objects get."""

    label: str = setting("The label's key.", min_length=1)
    value: str = setting("The value for objects without the label.")


def admit(request: Request, settings: Settings) -> Response:
    if request.object is None:
        return allow()

    def add_label(object: Any) -> None:
        # Some APIs have objects without metadata, or with `labels: null`.
        metadata = object["metadata"] = object.get("metadata") or {}
        labels = metadata["labels"] = metadata.get("labels") or {}
        labels.setdefault(settings.label, settings.value)

    return mutate(request, add_label)


plugin = Plugin(
    name="{{name}}",
    version="0.1.0",
    summary="Adds a label to objects without it.",
    mutates=True,
    resources=["v1/pods", "apps/v1/deployments"],
    settings=Settings,
    admit=admit,
    warm_up={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sample", "labels": {"app": "sample"}}},
)

WitWorld = plugin.component()
