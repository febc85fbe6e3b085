"""The configuration of a tool-calling run, for those who fold or read one."""

from stepfold.events.configuration import HarnessConfig
from stepfold.projections.state import Run

NOT_STARTED = HarnessConfig()


def config_of(run: Run) -> HarnessConfig:
    """The configuration of a tool-calling run."""
    config = run.config
    return config if isinstance(config, HarnessConfig) else NOT_STARTED
