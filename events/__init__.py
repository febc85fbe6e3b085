"""The vocabulary: what can happen in a run, its canonical bytes, and where they are kept."""
