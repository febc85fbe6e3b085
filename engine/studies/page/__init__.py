"""The page of `stepfold view`: a run as data (`told`, `words`, `seen`), and its file (`document`)."""
