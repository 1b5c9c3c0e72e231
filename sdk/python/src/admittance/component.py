"""Implements the contract with the host. The modules of its types exist only in a build by componentize-py."""

import gc
import json
import sys
from typing import Any

from componentize_py_types import Err  # type: ignore[import-not-found]
from wit_world.imports import types  # type: ignore[import-not-found]

from . import heap
from .plugin import Plugin, SettingsErrors
from .request import Object
from .response import Response
from .sample import request_for

_CAPABILITIES = {
    "cluster": types.Capability_Cluster,
    "http": types.Capability_Http,
    "environment": types.Capability_Environment,
}

#: The number of calls after which Python has specialized the code of a hook.
_WARM = 20


def component_of(plugin: Plugin) -> type:
    configured: Any = None

    class Component:
        def describe(self) -> Any:
            return types.Description(
                name=plugin.name,
                version=plugin.version,
                summary=plugin.summary,
                mutates=plugin.mutates,
                resources=[types.ResourceRule([group], [version], [name]) for group, version, name in plugin.rules],
                settings_schema=json.dumps(plugin.schema),
                capabilities=[
                    _CAPABILITIES[kind](value) for kind, values in plugin.capabilities.items() for value in values
                ],
            )

        def configure(self, settings: str) -> None:
            nonlocal configured
            try:
                configured = plugin.configured(settings)
            except SettingsErrors as mistakes:
                raise Err([types.SettingsError(error.pointer, error.message) for error in mistakes.errors])
            except Exception as error:
                # A bug in `configure` is reported to operators as a mistake in the settings as a whole.
                raise Err([types.SettingsError("", _text(error))])
            if plugin.warm_up is not None:
                for _ in range(_WARM):
                    try:
                        _contract(plugin.respond(_sample(plugin.warm_up), configured))
                    except Exception:
                        # Errors are ignored: lookups, for example, are unavailable during `configure`.
                        break
            # A call ends before reference cycles matter. A garbage collection would copy most of the memory.
            gc.disable()
            gc.collect()
            heap.make_immortal()
            gc.freeze()
            heap.fill_holes()

        def admit(self, request: Any) -> Any:
            try:
                return _contract(plugin.respond(request, configured))
            except Exception as error:
                raise Err(_text(error))

    return Component


def _sample(object: Object) -> Any:
    fields = vars(request_for("create", object))
    fields |= {
        "operation": types.Operation.CREATE,
        "kind": types.GroupVersionKind(**vars(fields["kind"])),
        "resource": types.GroupVersionResource(**vars(fields["resource"])),
        "user": types.UserInfo(**vars(fields["user"])),
    }
    return types.Request(**fields)


def _text(error: Exception) -> str:
    """Returns the text of an error, with the last line of the plugin's own modules that led to it."""
    place, traceback = "", error.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in {__package__, *sys.stdlib_module_names}:
            file = traceback.tb_frame.f_code.co_filename.rpartition("/")[2]
            place = f" ({file}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    return f"{type(error).__name__}: {error}{place}"


def _contract(response: Response) -> Any:
    denial = response.denial
    if denial is not None:
        verdict = types.Verdict_Deny(types.Denial(denial.code, denial.reason, denial.message))
    elif response.replacement is not None:
        verdict = types.Verdict_Replace(json.dumps(response.replacement))
    elif response.patch:
        verdict = types.Verdict_Patch(json.dumps(response.patch))
    else:
        verdict = types.Verdict_Allow()
    return types.Response(verdict, response.warnings, list(response.audit_annotations.items()))
