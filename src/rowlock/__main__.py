"""`python -m rowlock`: the command `rowlock`, with the packages of this interpreter."""

from rowlock.cli.main import rowlock

if __name__ == "__main__":
    rowlock()
