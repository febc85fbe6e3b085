"""How long to wait before the next attempt of a model call. Computed always; slept only if asked for."""

import re

from stepfold.events.configuration import Retry
from stepfold.projections.digest import digest_of


def backoff(retry: Retry, attempt: int) -> float:
    """Seconds before the attempt after number `attempt` (from 0): the first delay, growing to the longest."""
    if attempt > 64:
        return retry.longest
    return min(retry.longest, retry.initial * retry.multiplier**attempt)


def jittered(delay: float, share: float) -> float:
    """A delay moved by up to a quarter either way; `share` runs from 0 (least) to 1 (most)."""
    return delay * (0.75 + 0.5 * min(1.0, max(0.0, share)))


def hinted(delay: float, retry_after: float, longest_hint: float) -> float:
    """A server's Retry-After only lengthens a delay, and only so far."""
    return max(delay, min(retry_after, longest_hint))


_HINT = re.compile(r"retry[- ]after:?\s*(\d{1,9}(?:\.\d{1,9})?)", re.IGNORECASE | re.ASCII)


def hint_in(text: str) -> float:
    """The seconds of a `Retry-After: N` in an error's text, for adapters that give only that; 0 without."""
    found = _HINT.search(text)
    return float(found[1]) if found else 0.0


def delay_of(retry: Retry, attempt: int, retry_after: float, seed: str) -> float:
    """The delay before the next attempt. Jitter is drawn from `seed`, so that replay draws the same."""
    delay = backoff(retry, attempt)
    if retry.jitter:
        delay = jittered(delay, int(digest_of(f"{seed}:{attempt}"), 16) / 0xFFFFFFFFFFFFFFFF)
    return hinted(delay, retry_after, retry.longest_hint)
