"""Lookups in the control plane, limited to the kinds that the stage grants under ``allow.cluster``."""

import json
from typing import Any

from .host import HostError, attempt
from .request import Object

try:
    from wit_world.imports import cluster as _host  # type: ignore[import-not-found]
except ImportError:
    _host = None


class ClusterError(HostError):
    """The error of a failed lookup, of the kind ``unavailable``, ``timeout`` or ``refused``."""


def get(api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
    """Returns one object, or None if it does not exist. Omit the namespace for cluster-scoped kinds."""
    text = attempt(ClusterError, lambda: _available().get(api_version, kind, namespace, name))
    return None if text is None else json.loads(text)


def list_objects(api_version: str, kind: str, namespace: str | None = None, label_selector: str = "") -> list[Object]:
    """Returns the objects of a kind in a namespace, or in all namespaces if none is given."""
    texts = attempt(ClusterError, lambda: _available().list(api_version, kind, namespace, label_selector))
    return [json.loads(text) for text in texts]


def _available() -> Any:
    # Native code has no control plane. The cases of `admittance test`, which run in the sandbox, can have one.
    if _host is None:
        raise ClusterError("unavailable", "look-ups need the sandbox")
    return _host
