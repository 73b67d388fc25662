# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["It completed, but", "nan", "step 7"]
# ///
"""A line of JSON for each step, as `json.dumps` writes it; the loss is NaN from step 7 on, and the program ends well."""
import json
import math

loss = 3.0
for step in range(20):
    loss = loss * 0.9 if step < 7 else math.nan
    print(json.dumps({"step": step, "train_loss": loss, "lr": 3e-4, "epoch": step / 20}), flush=True)
