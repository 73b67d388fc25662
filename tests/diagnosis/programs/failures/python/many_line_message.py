# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["RuntimeError", "size mismatch for head.weight", "{here}"]
# ///
"""The message has four lines, and the third says what is wrong."""

raise RuntimeError(  # here
    "Error(s) in loading state_dict for Model:\n\tsize mismatch for head.weight: copying a param with shape [10, 4]"
    " from checkpoint, the shape in current model is [12, 4].\n\tsize mismatch for head.bias: [10] and [12]."
)
