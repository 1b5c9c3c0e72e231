"""Plugins: their description and their functions."""

import json
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, Callable, Literal, Mapping, Sequence, get_args

from . import schema
from .request import Object, Request
from .response import Response


@dataclass(frozen=True)
class SettingsError:
    """A mistake in the settings: its JSON Pointer, and a message that says what is wrong and how to fix it."""

    pointer: str
    message: str


class SettingsErrors(Exception):
    """Mistakes in the settings. Raise one exception with all of them."""

    def __init__(self, errors: Sequence[SettingsError]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(f'settings at "{error.pointer}": {error.message}' for error in errors))


@dataclass
class NoSettings:
    """The settings of a plugin that has none."""


Capability = Literal["cluster", "http", "environment"]


@dataclass(kw_only=True)
class Plugin:
    """A plugin: its description for operators, and its functions."""

    #: The name: short, in lower case, with hyphens.
    name: str
    #: The plugin's version, as semver.
    version: str
    #: A summary: one or two sentences for operators who choose a plugin.
    summary: str
    #: Returns the verdict on one request. If it raises an error, the plugin has failed.
    admit: Callable[[Request, Any], Response]
    #: The type of the settings: a dataclass whose fields are created by `setting`.
    settings: type = NoSettings
    #: Checks the settings beyond their types, and returns the value that `admit` gets instead of the settings.
    configure: Callable[[Any], Any] | None = None
    #: Whether the plugin may return a patch or a replacement.
    mutates: bool = False
    #: The supported resources: ``v1/pods``, ``apps/v1/deployments``.
    resources: Sequence[str] = ()
    #: The requested capabilities: kinds such as ``v1/Node``, origins such as ``https://policy.example.com``.
    capabilities: Mapping[Capability, Sequence[str]] = field(default_factory=dict)
    #: An object that is admitted a few times after `configure`. Every call starts with the caches that this has filled.
    warm_up: Object | None = None

    def __post_init__(self) -> None:
        if iscoroutinefunction(self.admit):
            raise TypeError("`admit` is async; a plugin answers at once: remove `async`, look-ups and requests wait")
        self.schema = schema.schema_of(self.settings)
        self.rules = [_rule(resource) for resource in self.resources]
        for kind, values in self.capabilities.items():
            if kind not in get_args(Capability):
                known = ", ".join(get_args(Capability))
                raise TypeError(f"capabilities: `{kind}` is not a capability; use {known}")
            if isinstance(values, str):
                raise TypeError(f"capabilities: `{kind}` is not a list; write a list of texts")

    def configured(self, text: str) -> Any:
        """Parses the settings, and returns the value that `admit` gets. Raises `SettingsErrors`."""
        value = json.loads(text)
        if mistakes := schema.check(self.schema, value):
            raise SettingsErrors([SettingsError(*mistake) for mistake in mistakes])
        settings = schema.build(self.settings, value)
        return self.configure(settings) if self.configure else settings

    def respond(self, contract: Any, configured: Any) -> Response:
        """Returns the response to a request in the form of the contract."""
        response = self.admit(Request(contract), configured)
        if not isinstance(response, Response):
            raise TypeError("`admit` returned no response; return allow(), deny(...), patch(...) or mutate(...)")
        return response

    def component(self) -> type:
        """Returns the class that componentize-py exports: assign it to ``WitWorld`` in the module of the plugin.

        Native tests import that module too. Outside of the sandbox, the class has no use.
        """
        try:
            from .component import component_of
        except ImportError:
            return object
        return component_of(self)


def _rule(resource: str) -> tuple[str, str, str]:
    """Splits a resource into group, version and resource."""
    parts = resource.split("/")
    if len(parts) not in (2, 3):
        raise TypeError(
            f"resources: `{resource}` is not a resource; write `v1/pods` or `apps/v1/deployments`"
        )
    group, version, name = parts if len(parts) == 3 else ["", *parts]
    return group, version, name
