"""How the command lines start a server: its flags, also those of its last start (`settings.py`), and its process (`process.py`)."""
