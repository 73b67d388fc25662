"""Valid objects near every limit, against a live server: what each costs its event loop, its memory, and another tenant."""
