"""rowlock runs distributed training: submit, schedule, watch and stop jobs whose ranks run on many processors.

Read `docs/design/walk.md` for the house and the walk of one submit through it.
"""

__version__ = "0.1.0"

KUBERNETES = "1.34.4"
"""The release whose API this is. `make types` after a change: the table of types is that release's, and a test says so."""
