# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["It completed, but", "nan", "step 12"]
# ///
"""Dicts as Hugging Face prints them; the loss is nan from step 12 on."""
for step in range(30):
    print({"loss": 2.5 / (step + 1) if step < 12 else float("nan"), "learning_rate": 0.001, "step": step}, flush=True)
