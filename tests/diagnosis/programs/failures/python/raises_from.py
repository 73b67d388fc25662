# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["ValueError: no optimizer 'lion': there are ['adam', 'sgd']", "caused by KeyError", "{here}"]
# short = true
# ///
"""An error that the program explains with `raise … from`."""

OPTIMIZERS = {"adam": 1, "sgd": 2}


def build(name):
    try:
        return OPTIMIZERS[name]
    except KeyError as error:
        raise ValueError(f"no optimizer {name!r}: there are {sorted(OPTIMIZERS)}") from error  # here


build("lion")
