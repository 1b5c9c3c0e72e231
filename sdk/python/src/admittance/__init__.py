"""Plugins for Admittance.

A plugin is a function that gets a request and its settings, and returns a response::

    def admit(request: Request, settings: Settings) -> Response:
        return allow()

    WitWorld = Plugin(name="a", version="0.1.0", summary="...", settings=Settings, admit=admit).component()
"""

import sys

if sys.platform == "wasi":
    # Holes are filled before the modules of the plugin are loaded.
    from .heap import fill_holes

    fill_holes()

from .patch import Patch, pointer
from .plugin import Plugin, SettingsError, SettingsErrors
from .request import GroupVersionKind, GroupVersionResource, Request, UserInfo
from .response import Denial, Response, allow, deny, mutate, patch, replace
from .schema import setting

__all__ = [
    "Denial",
    "GroupVersionKind",
    "GroupVersionResource",
    "Patch",
    "Plugin",
    "Request",
    "Response",
    "SettingsError",
    "SettingsErrors",
    "UserInfo",
    "allow",
    "deny",
    "mutate",
    "patch",
    "pointer",
    "replace",
    "setting",
]
