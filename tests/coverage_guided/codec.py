"""Coverage-guided: any bytes as a line of a log. Needs `pip install 'stepfold[coverage-guided]'`.

python tests/coverage_guided/codec.py -max_total_time=60 tests/coverage_guided/codec_corpus
"""

import base64
import sys

import atheris

with atheris.instrument_imports(include=["stepfold.events"]):
    from stepfold.events import codec, upcasters  # noqa: F401

from stepfold.engine.testing.targets import judge_codec


def judge(line: bytes) -> None:
    """One line, judged by the rules of the fuzzer; what it raises is a find."""
    judge_codec({"line_b64": base64.b64encode(line).decode()})


if __name__ == "__main__":
    atheris.Setup(sys.argv, judge)
    atheris.Fuzz()
