"""A program for docs/sweeps.md: a hundred epochs whose loss falls to what the learning rate allows."""

import sys
import time

lr = float(sys.argv[1])
for epoch in range(1, 101):
    time.sleep(0.2)
    print(f"epoch={epoch} val_loss={abs(lr - 0.01) + 1 / epoch:.4f}", flush=True)
