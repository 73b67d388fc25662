"""The command tree of `rowlock` and `runai`."""

import click


@click.group()
def rowlock() -> None:
    """Distributed training on one machine or a cluster."""


@click.group()
def runai() -> None:
    """Run:ai-compatible command line."""
