# /// verdict
# ranks = 1
# command = "train_llm --config {program}"
# who = ["rank 0"]
# says = ["could not start", "train_llm"]
# ///
"""The pod's command is no program."""
