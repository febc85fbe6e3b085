"""Coverage-guided: any bytes against the contract. Needs `pip install 'stepfold[coverage-guided]'`.

python tests/coverage_guided/contract.py -max_total_time=60 tests/coverage_guided/contract_corpus
"""

import base64
import sys

import atheris

with atheris.instrument_imports(include=["stepfold.engine.contract"]):
    from stepfold.engine.contract import document, envelope  # noqa: F401

from stepfold.engine.testing.targets import judge_contract


def judge(reply: bytes) -> None:
    """One reply, judged by the rules of the fuzzer; what it raises is a find."""
    judge_contract({"raw_b64": base64.b64encode(reply).decode()})


if __name__ == "__main__":
    atheris.Setup(sys.argv, judge)
    atheris.Fuzz()
