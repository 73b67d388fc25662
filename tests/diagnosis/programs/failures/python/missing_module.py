# /// verdict
# who = ["rank 0", "rank 1"]
# says = ["ModuleNotFoundError: No module named 'flash_attn_of_the_cluster'", "{here}"]
# short = true
# ///
"""A package is not in the image."""
import flash_attn_of_the_cluster  # here
