# /// verdict
# needs = ["click"]
# command = "python {program} --lr tiny"
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 2", "Invalid value for '--lr'"]
# ///
"""A command line of click."""
import click


@click.command()
@click.option("--lr", type=float)
def main(lr):
    print(lr)


main()
