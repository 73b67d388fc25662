"""What a shim does where a container engine runs the program: creates it there, passes its streams on, asks it to end, learns how it ended.

Standard library only, imported by shims of such containers alone. Begin with `engine_proxy.py`.
"""
