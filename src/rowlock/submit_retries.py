"""When a submit is sent again, said once: for the command lines and the Python client, which send it, and for REST, which knows it again.

Literals only: the command lines import this, and they answer in a blink.
"""

KEY_HEADER = "Idempotency-Key"
"""All tries of one submit have the same value of this header, by which the server makes one job of them."""
PAUSES_S = (0.5, 1.5, 4.0)
"""Seconds before the second try and before those that follow it."""
UNDECIDED = (500, 503, 504)
"""Statuses after which the job may be there: the server could not ask, or the cluster did not answer it."""
