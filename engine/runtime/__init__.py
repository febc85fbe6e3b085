"""The hands: drive, effects, the log of a run, and the loops built on them."""
