"""Environment variables that the stage grants under ``allow.environment``. ``os.environ`` has the build's variables."""

import os

try:
    from wit_world.imports import environment as _host  # type: ignore[import-not-found]
except ImportError:
    _host = None


def get(name: str) -> str | None:
    """Returns the value of a variable, or None if it is not granted. Natively, reads the variables of the process."""
    if _host is None:
        return os.environ.get(name)
    return dict(_host.get_environment()).get(name)
