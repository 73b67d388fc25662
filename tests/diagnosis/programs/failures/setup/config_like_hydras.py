# /// verdict
# ranks = 1
# who = ["rank 0"]
# says = ["exit code 1", "ConfigAttributeError: Key 'hiden_size' is not in struct"]
# ///
"""A wrapper of the kind of hydra prints a shortened traceback by itself, with advice behind it, and leaves."""
import sys
import traceback


class ConfigAttributeError(AttributeError):
    pass


def build(config):
    raise ConfigAttributeError("Key 'hiden_size' is not in struct\n    full_key: model.hiden_size\n    object_type=dict")


try:
    build({})
except Exception:
    print("Error executing job with overrides: ['model=gpt', 'trainer.nodes=2']", file=sys.stderr)
    traceback.print_exc()
    print("\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.", file=sys.stderr)
    sys.exit(1)
