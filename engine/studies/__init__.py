"""Questions asked of recorded runs: evaluation, judgement, difference, import, fuzzing."""
