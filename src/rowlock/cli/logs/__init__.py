"""How the command line writes logs of many ranks: folding (`folding.py`). It knows lines and tags, no server."""
