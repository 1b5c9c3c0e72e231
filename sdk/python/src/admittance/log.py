"""Lines for the operator's log. The host adds the stage's name and the request's uid."""

import sys

try:
    from wit_world.imports import logging as _host  # type: ignore[import-not-found]
except ImportError:
    _host = None


def _line(level: str, message: object) -> None:
    if _host is None:
        print(f"{level}: {message}", file=sys.stderr)
    else:
        _host.log(_host.Level[level.upper()], "", str(message))


def trace(message: object) -> None:
    _line("trace", message)


def debug(message: object) -> None:
    _line("debug", message)


def info(message: object) -> None:
    _line("info", message)


def warn(message: object) -> None:
    _line("warn", message)


def error(message: object) -> None:
    _line("error", message)
