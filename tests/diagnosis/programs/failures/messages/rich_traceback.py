# /// verdict
# needs = ["rich"]
# ranks = 1
# who = ["rank 0"]
# says = ["ValueError: a learning rate of -1", "{here}"]
# ///
"""rich prints the traceback in a box, with the variables of each call."""
from rich.traceback import install

install(show_locals=True)


def build(rate):
    raise ValueError(f"a learning rate of {rate}")  # here


print("building", flush=True)
build(-1)
