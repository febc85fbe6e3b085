"""Other programs' traces as runs of ours: what a file says becomes observed events, and nothing is added."""
