"""The heap of Python in a component, where every object is a block of C's heap."""

import gc
import sys
from types import CodeType
from typing import Callable

try:
    from . import _immortal  # type: ignore[attr-defined]
except ImportError:
    # With another version of Python, the module is missing, so Python counts references, and calls take longer.
    _immortal = None

#: The sizes of blocks that fill holes. C lists small holes by size, in steps of 16 bytes.
_SIZES = [1 << power for power in range(18, 9, -1)] + list(range(496, 0, -16))

_filling: list[object] = []


def make_immortal() -> None:
    """Makes all objects immortal: Python no longer counts the references to them.

    A call gets its own copy of each page that it writes, and counting references writes to every object in use.
    """
    if _immortal is None:
        return
    objects = gc.get_objects()
    while objects:
        objects = [each for each in objects if not sys._is_immortal(each)]
        _immortal.immortalize(objects)
        constants = [each.co_consts for each in objects if type(each) is CodeType]
        objects = gc.get_referents(*objects, *constants) + constants


def fill_holes() -> None:
    """Fills the holes between blocks, so that later objects are next to each other, at the end of the heap.

    Each page that a call writes is copied for the call. With fewer holes, a call writes to fewer pages.
    """
    end = bytes(1 << 20)

    def fill(make: Callable[[], object]) -> None:
        # A block at a higher address shows that no hole of this size is left before the end.
        while id(block := make()) < id(end):
            _filling.append(block)

    for size in _SIZES:
        fill(lambda: bytes(size))
    fill(object)
