"""JSON Patch."""

from typing import Any, Sequence

from .schema import child

Path = str | Sequence[str | int]
Operation = dict[str, Any]


def pointer(*keys: str | int) -> str:
    """Escapes the keys of a path and joins them: ``pointer("metadata", "labels", "a/b")``."""
    path = ""
    for key in keys:
        path = child(path, key)
    return path


def _path(path: Path) -> str:
    return path if isinstance(path, str) else pointer(*path)


class Patch:
    """A JSON Patch (RFC 6902). Paths are JSON Pointers, or sequences of keys. Keys are escaped."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def add(self, path: Path, value: Any) -> "Patch":
        return self._push(op="add", path=_path(path), value=value)

    def replace(self, path: Path, value: Any) -> "Patch":
        return self._push(op="replace", path=_path(path), value=value)

    def test(self, path: Path, value: Any) -> "Patch":
        return self._push(op="test", path=_path(path), value=value)

    def remove(self, path: Path) -> "Patch":
        return self._push(op="remove", path=_path(path))

    def move(self, source: Path, path: Path) -> "Patch":
        return self._push(**{"op": "move", "from": _path(source), "path": _path(path)})

    def copy(self, source: Path, path: Path) -> "Patch":
        return self._push(**{"op": "copy", "from": _path(source), "path": _path(path)})

    def _push(self, **operation: Any) -> "Patch":
        self.operations.append(operation)
        return self


def difference(before: Any, after: Any) -> Patch:
    """Returns the patch that turns the first value into the second."""
    changes = Patch()
    _compare(before, after, [], changes)
    return changes


def _compare(before: Any, after: Any, path: list[str | int], changes: Patch) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if key not in after:
                changes.remove([*path, key])
        for key, value in after.items():
            if key in before:
                _compare(before[key], value, [*path, key], changes)
            else:
                changes.add([*path, key], value)
    elif isinstance(before, list) and isinstance(after, list):
        common = min(len(before), len(after))
        for index in range(common):
            _compare(before[index], after[index], [*path, index], changes)
        for index in range(len(before) - 1, common - 1, -1):
            changes.remove([*path, index])
        for value in after[common:]:
            changes.add([*path, "-"], value)
    # `True` equals `1` in Python.
    elif before != after or type(before) is not type(after):
        changes.replace(path, after)
