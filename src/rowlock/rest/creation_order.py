"""Rows in the order in which their objects were created."""

from __future__ import annotations

from bisect import bisect_left
from typing import Generic, TypeVar

R = TypeVar("R")
SortKey = tuple[str, str, str]
"""An object's creation time, name and uid."""


class CreationOrder(Generic[R]):
    """Rows kept in the order of creation, so that a list of ten thousand is a slice and not a sort."""

    def __init__(self) -> None:
        self._sort_keys: list[SortKey] = []
        self.rows: list[R] = []

    def add(self, sort_key: SortKey, row: R) -> None:
        """Insert a row at its place, in logarithmic time and one move of the list."""
        index = bisect_left(self._sort_keys, sort_key)
        self._sort_keys.insert(index, sort_key)
        self.rows.insert(index, row)

    def remove(self, sort_key: SortKey) -> None:
        """Remove the row of this key; nothing when there is none."""
        index = bisect_left(self._sort_keys, sort_key)
        if index < len(self._sort_keys) and self._sort_keys[index] == sort_key:
            del self._sort_keys[index], self.rows[index]
