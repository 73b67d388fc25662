"""Options of a submit beside Run:ai's `spec`: who is told what happens, when it may start, how long it may run. Begin with `own_options.py`. Pure."""
