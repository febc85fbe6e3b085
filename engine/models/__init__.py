"""Where replies come from: the protocol, and its scripted, recorded and HTTP twins."""
