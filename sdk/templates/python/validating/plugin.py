"""Refuses objects that do not carry a label."""

from dataclasses import dataclass

from admittance import Plugin, Request, Response, allow, deny, setting


@dataclass
class Settings:
    """The label that every object must carry."""

    label: str = setting("The label's key.", min_length=1)
    values: list[str] = setting(
        "The allowed values; if there are none, any value is allowed.", default=[], min_length=1
    )


def admit(request: Request, settings: Settings) -> Response:
    if request.object is None:
        return allow()
    label, values = settings.label, settings.values
    # Some APIs have objects without metadata, or with `labels: null`.
    labels = (request.object.get("metadata") or {}).get("labels") or {}
    value = labels.get(label)
    if value is None:
        return deny(f"metadata.labels: `{label}` is missing; add it")
    if values and value not in values:
        return deny(f"metadata.labels: `{label}` is `{value}`; use one of: {', '.join(values)}")
    return allow()


plugin = Plugin(
    name="{{name}}",
    version="0.1.0",
    summary="Refuses objects that do not carry a label.",
    resources=["v1/pods", "apps/v1/deployments"],
    settings=Settings,
    admit=admit,
    warm_up={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sample", "labels": {"app": "sample"}}},
)

WitWorld = plugin.component()
