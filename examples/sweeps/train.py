"""A program for docs/sweeps.md: it prints a loss that depends on a learning rate and a seed."""

import sys

lr, seed = float(sys.argv[1]), int(sys.argv[2])
for step in range(1, 4):
    print(f"step={step} val_loss={abs(lr - 0.01) + seed / step:.4f}", flush=True)
