"""The short digest of texts that the log refers to: one function, so that all of them agree."""

from hashlib import blake2b


def digest_of(text: str | bytes) -> str:
    """16 hex digits of BLAKE2b. Half surrogates are hashed as they are."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=8).hexdigest()
