"""The heap of Python in a component, where every object is a block of C's heap."""

from typing import Callable

#: The sizes of blocks that fill holes. Small holes are in lists of their own, by steps of 16 bytes.
_SIZES = [1 << power for power in range(18, 9, -1)] + list(range(496, 0, -16))

_filling: list[object] = []


def fill_holes() -> None:
    """Fills the holes between blocks, so that whatever is created next is in one place, at the end of the heap.

    A call has its own copy of each page that it writes, and Python writes to whatever it uses: it counts references. With
    the code of plugins in one place, and the objects of a call in another, a call writes to far fewer pages.
    """
    end = bytes(1 << 20)

    def fill(make: Callable[[], object]) -> None:
        # The address shows that there is no hole of this size before the end any more.
        while id(block := make()) < id(end):
            _filling.append(block)

    for size in _SIZES:
        fill(lambda: bytes(size))
    fill(object)
