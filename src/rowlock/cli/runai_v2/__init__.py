"""`runai`'s commands of the second generation: `tree.py` is the table of families and verbs, `tables.py` how lists are printed."""
