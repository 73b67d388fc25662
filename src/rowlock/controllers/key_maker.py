"""`KeyMaker`: SSH keys for MPI TrainJobs, without a pause of the event loop while the library that makes them is loaded."""

from __future__ import annotations

import threading

from rowlock.training.trainjob.ssh_keys import KeyNotReady, make_key_pair


class KeyMaker:
    """Makes keys without a long pause: the first call raises `KeyNotReady`, because it begins to load the library on a thread."""

    def __init__(self) -> None:
        self._loading: threading.Thread | None = None

    def __call__(self) -> tuple[str, str]:
        """A new key pair, as `make_key_pair` returns it. Raises KeyNotReady."""
        if self._loading is None:
            self._loading = threading.Thread(target=make_key_pair, name="ssh-key library", daemon=True)
            self._loading.start()
            raise KeyNotReady
        if self._loading.is_alive():
            raise KeyNotReady
        return make_key_pair()
