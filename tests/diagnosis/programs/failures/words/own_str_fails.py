# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["BadMessage", "{here}"]
# ///
"""An exception whose own text cannot be made."""


class BadMessage(Exception):
    def __str__(self):
        return self.args[5]


raise BadMessage("x")  # here
