"""A sampler of the indices for each rank, whose order can be resumed in the middle of an epoch.

sampler = ResumableSampler(len(data), batch_size=32, seed=1)
loader = DataLoader(data, batch_sampler=sampler, num_workers=4)
for batch in sampler.batches(loader): ...      # one epoch, or what is left of it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rowlock.runtime.ranks import load_torch, rank_and_world_size

T = TypeVar("T")


class ResumableSampler:
    """Batches of indices for a DataLoader's `batch_sampler`. All ranks have equal shares of each epoch; the
    remainder is dropped. The order depends only on `seed` and the epoch."""

    def __init__(
        self,
        length: int,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """`length`: samples in the data set; `batch_size`: per rank. Raises ValueError if there is not one batch per rank."""
        found_rank, found_world_size = rank_and_world_size()
        self._rank = found_rank if rank is None else rank
        self._world_size = found_world_size if world_size is None else world_size
        self._length, self._batch_size, self._shuffle, self._seed = length, batch_size, shuffle, seed
        if batch_size < 1 or len(self) < 1:
            raise ValueError(
                f"{length} samples make no batch of {batch_size} for each of {self._world_size} ranks: choose a smaller batch_size"
            )
        self.epoch = 0
        self.position = 0
        """Batches of this epoch that the training loop has consumed."""

    def __len__(self) -> int:
        """Number of batches of a whole epoch."""
        return self._length // (self._world_size * max(self._batch_size, 1))

    def __iter__(self) -> Iterator[list[int]]:
        """The remaining batches of this epoch."""
        torch = load_torch()
        if self._shuffle:
            generator = torch.Generator()
            generator.manual_seed((self._seed << 20) + self.epoch)
            order = torch.randperm(self._length, generator=generator).tolist()
        else:
            order = list(range(self._length))
        own = order[self._rank :: self._world_size]
        for batch in range(self.position, len(self)):
            yield own[batch * self._batch_size : (batch + 1) * self._batch_size]

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """The rest of this epoch from a loader with this sampler. Counts the batches that the training loop consumes, not those that
        loader workers have prefetched. Begins the next epoch at the end."""
        torch = load_torch()
        if self.position >= len(self):  # the loop over the last epoch stopped at its last batch
            self.epoch, self.position = self.epoch + 1, 0
        before = torch.get_rng_state()
        batches = iter(loader)
        if self.position:
            torch.set_rng_state(
                before
            )  # iter(loader) drew a random number, which this epoch had already done before the resume
        for batch in batches:
            self.position += 1
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Epoch and position, with seed and length for verification."""
        return {"epoch": self.epoch, "position": self.position, "seed": self._seed, "length": self._length}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a saved position. Raises ValueError for another data set length or seed."""
        for name, now in (("seed", self._seed), ("length", self._length)):
            if state[name] != now:
                raise ValueError(f"the checkpoint was made with {name} {state[name]}, and this sampler has {now}")
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
