"""Folds of the log: the run, its prompt, transcript and outcome."""
