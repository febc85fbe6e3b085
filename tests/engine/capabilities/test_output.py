import hashlib

from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.output import Capture, cap


@given(st.lists(st.binary(max_size=40)), st.integers(2, 60))
def test_pieces_are_kept_as_the_whole_would_be(pieces: list[bytes], limit: int) -> None:
    whole = b"".join(pieces)
    capture = Capture(limit)
    for piece in pieces:
        capture.feed(piece)
    assert capture.capped() == cap(whole, limit)
    assert capture.capped().digest == hashlib.sha256(whole).hexdigest()
    assert capture.capped().size == len(whole)


@given(st.text(alphabet="abc\n", max_size=100), st.integers(2, 60))
def test_what_is_short_stays_and_what_is_long_keeps_both_ends(text: str, limit: int) -> None:
    capped = cap(text.encode(), limit)
    if len(text) <= limit:
        assert capped.text == text
        return
    assert capped.text.startswith(text[: limit - limit // 2])
    assert capped.text.endswith(text[-(limit // 2) :])
    assert f"[… {len(text) - limit} bytes left out, sha256:{capped.digest} of the whole …]" in capped.text
