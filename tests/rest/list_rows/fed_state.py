"""A state that tests feed by hand, for the informer cache."""

from rowlock import objects
from rowlock.api import Change
from rowlock.controllers.view.state import State
from rowlock.kinds import Kind
from rowlock.objects import Key, Object


def put(state: State, kind: Kind, obj: Object) -> None:
    """Add or change an object."""
    old = state.get(kind, *objects.key(obj))
    state.apply(Change("Modified" if old else "Added", objects.revision(obj), kind, obj, old))


def drop(state: State, kind: Kind, key: Key) -> None:
    """Delete an object, if it is there."""
    if (old := state.get(kind, *key)) is not None:
        state.apply(Change("Deleted", objects.revision(old), kind, old, old))
