"""Errors of lookups and HTTP requests: the reasons why a call of the host failed."""

import re
from typing import Any, Callable, TypeVar

try:
    from componentize_py_types import Err  # type: ignore[import-not-found]
except ImportError:
    # Outside of the sandbox, there is no host that could be called.
    class Err(Exception):  # type: ignore[no-redef]
        value: Any


T = TypeVar("T")


class HostError(Exception):
    """``kind`` is an error kind of the contract: ``unavailable``, ``timeout`` and so on."""

    def __init__(self, kind: str, detail: object = None) -> None:
        super().__init__(kind if detail is None else f"{kind}: {detail}")
        self.kind = kind


def attempt(failure: type[HostError], call: Callable[[], T]) -> T:
    try:
        return call()
    except Err as error:
        # `Error_TooLarge` is the case `too-large`.
        case = type(error.value).__name__.removeprefix("Error_")
        kind = re.sub(r"(?<!^)(?=[A-Z])", "-", case).lower()
        raise failure(kind, getattr(error.value, "value", None)) from None
