"""`AgentLoop`: the strict goal loop, ready to run: one action a step, recorded whole."""

import asyncio
import secrets
import signal
import time
from collections.abc import Sequence
from contextlib import contextmanager
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from stepfold.engine.capabilities.checks import detect
from stepfold.engine.capabilities.manifests import NATIVE
from stepfold.engine.capabilities.memory import Memory
from stepfold.engine.capabilities.sandbox import Limits, probe
from stepfold.engine.models.protocol import Model
from stepfold.engine.models.resolve import resolve
from stepfold.engine.runtime.drive import drive
from stepfold.engine.runtime.goal_effects import GoalEffects
from stepfold.engine.runtime.live import LiveEffects
from stepfold.engine.runtime.run_log import RunLog, Watch
from stepfold.events.configuration import CheckSpec, Generation, GoalConfig, Rule
from stepfold.events.store import Store
from stepfold.events.vocabulary import BLANK, CancelRequested, RunStarted, SandboxProbed
from stepfold.projections.outcome import LoopOutcome, outcome
from stepfold.projections.state import Run


class AgentLoop:
    """Runs goals in a project, one strict action a step.

    `model` is a `Model` or what `--model` takes. Timeouts are in seconds, the window in tokens.
    `checks` are the acceptance checks; None takes those that the project shows. `store` is a folder
    or an open `Store`; None means `.stepfold` in the project. `watch` is told of every event.
    """

    def __init__(
        self,
        *,
        model: Model | str,
        project: str | Path = ".",
        max_steps: int = 12,
        model_request_timeout: float = 120.0,
        worker_slots: int = 0,
        context_window: int = 262_000,
        verification: Literal["commands", "manual"] = "commands",
        checks: Sequence[CheckSpec] | None = None,
        profile: str = "",
        store: Store | str | Path | None = None,
        generation: Generation | None = None,
        policy: Sequence[Rule] = (),
        sandbox: str = "auto",
        limits: Limits | None = None,
        network: bool = False,
        memory: bool = True,
        durability: str = "normal",
        watch: Watch | None = None,
    ) -> None:
        self.model = resolve(model) if isinstance(model, str) else model
        self.project = Path(project).resolve()
        self.checks = detect(self.project) if checks is None else tuple(checks)
        self.store = store if isinstance(store, Store) else Store(Path(store or self.project / ".stepfold"))
        self._config = GoalConfig(
            goal="",
            model=self.model.name,
            project=self.project.name,
            profile=profile,
            max_steps=max_steps,
            model_request_timeout=model_request_timeout,
            worker_slots=worker_slots,
            context_window=context_window,
            verification=verification,
            checks=self.checks,
            manifests=NATIVE,
            policy=tuple(policy),
            sandbox_required=sandbox != "none",
            network=network,
            memory=memory,
            generation=generation or Generation(),
        )
        self._sandbox = sandbox
        self._limits = limits or Limits()
        self._durability = durability
        self._watch = watch

    def run(self, goal: str) -> LoopOutcome:
        """Work towards a goal until the run ends. Ctrl-C ends it cancelled, with its log whole."""
        return asyncio.run(self.run_async(goal, interruptible=True))
