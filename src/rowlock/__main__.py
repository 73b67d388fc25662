"""`python -m rowlock`: runs the command `rowlock` with this interpreter."""

from rowlock.cli.main import rowlock

if __name__ == "__main__":
    rowlock()
