"""The page of `stepfold view`: what a run came to as data (`told`, `seen`), and the file around it (`document`)."""
