"""`runai`'s commands of the first generation: `tree.py` is the table of verbs."""
