"""The heap of Python in a component, where every object is a block of C's heap."""

import gc
import sys
from types import CodeType
from typing import Callable

try:
    from . import _immortal  # type: ignore[attr-defined]
except ImportError:
    # Another version of Python: it counts references, and calls take longer.
    _immortal = None

#: The sizes of blocks that fill holes. Small holes are in lists of their own, by steps of 16 bytes.
_SIZES = [1 << power for power in range(18, 9, -1)] + list(range(496, 0, -16))

_filling: list[object] = []


def make_immortal() -> None:
    """Makes all objects immortal: Python no longer counts the references to them.

    A call has its own copy of each page that it writes, and Python writes to whatever it uses when it counts references.
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
    """Fills the holes between blocks, so that whatever is created next is in one place, at the end of the heap.

    A call writes to fewer pages if the objects that it creates are in one place.
    """
    end = bytes(1 << 20)

    def fill(make: Callable[[], object]) -> None:
        # The address shows that there is no hole of this size before the end any more.
        while id(block := make()) < id(end):
            _filling.append(block)

    for size in _SIZES:
        fill(lambda: bytes(size))
    fill(object)
