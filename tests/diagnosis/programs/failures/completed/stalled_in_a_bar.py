# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["It completed, but", "0.6931", "nothing was learned"]
# ///
"""A bar whose loss never changes."""
import sys

for step in range(40):
    sys.stderr.write(f"\rtrain: {step * 100 // 40:3d}%|####      | {step}/40 [00:01<00:01, 9.99it/s, loss=0.6931]")
    print(f"step {step}: loss 0.6931", flush=True)
