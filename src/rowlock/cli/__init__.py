"""The command lines `rowlock` and `runai`. They import nothing of the rest of the package and speak HTTP.

(Except for `rowlock.submit_fields`, the table from which both flags and the REST API are derived.)

    main.py       entry points            grammar.py   flags, commands, groups as tables; parsing; help
    tree.py       `rowlock`'s commands    runai_tree.py  `runai`'s commands, of both generations
    submit/       flags of a submit from the table of fields, and what they put into a request
    client.py     the server over HTTPS   context.py   data directory, selected project
    output.py     tables, ages, JSON

One file per verb group: `cluster.py run.py jobs.py logs.py projects.py images.py doctor.py`, and `submit.py
jobs.py context.py` for Run:ai's first generation, `runai_v2` for its second. A verb's file is imported when the verb runs; `--help` needs
only the tables.
"""
