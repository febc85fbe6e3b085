"""State machines over both loops: rules move the world, and after every step all that must hold is checked.

Subclass one, override `configs`, and run its `TestCase` under pytest to fuzz a loop of your own settings.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from stepfold.engine.testing.moves import Move
from stepfold.engine.testing.player import GoalPlayer
from stepfold.engine.testing.said import actions, malformed_replies
from stepfold.engine.testing.script_strategies import TEXTS, configs, moves
from stepfold.engine.testing.tool_player import ToolPlayer
from stepfold.engine.testing.tool_scripts import tool_configs, tool_moves
from stepfold.events.configuration import GoalConfig, HarnessConfig


class _Machine(RuleBasedStateMachine):
    """What both machines share: how a move is played, and that every run ends."""

    player: Any = None

    def _play(self, move: Move) -> None:
        # Hypothesis takes a machine that has no rule left for a mistake: those of an ended run do nothing.
        if self.player is not None and not self.player.ended:
            self.player.play(move)

    def teardown(self) -> None:
        """The run is fed plain landings, and must end."""
        if self.player is not None:
            try:
                self.player.finish()
            finally:
                self.player.close()


class LoopMachine(_Machine):
    """The strict goal loop, live: tools that fail, hang and lie, clocks that jump, kills."""

    @staticmethod
    def configs() -> st.SearchStrategy[GoalConfig]:
        """The configurations to begin with."""
        return configs()

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A run starts."""
        self.player = GoalPlayer(data.draw(self.configs()))

    @rule(spoken=actions())
    def say_an_action(self, spoken: Any) -> None:
        """The model keeps the contract."""
        self._play(Move("say", spoken.reply, expected=("",)))

    @rule(malformed=malformed_replies())
    def say_something_else(self, malformed: Any) -> None:
        """The model does not."""
        if isinstance(malformed.reply, str):
            self._play(Move("say", malformed.reply, expected=malformed.expected))

    @rule(text=TEXTS, number=st.sampled_from((0, 0, 1, -1)), which=st.integers(0, 2))
    def land(self, text: str, number: int, which: int) -> None:
        """A tool, a check or the memory answers."""
        self._play(Move("land", text, number, which))

    @rule(move=moves())
    def anything(self, move: Move) -> None:
        """Whatever else may happen."""
        self._play(move)


class HarnessMachine(_Machine):
    """The tool-calling loop, live: scripted replies and calls, tools, steering, cancels, clocks."""

    @staticmethod
    def configs() -> st.SearchStrategy[HarnessConfig]:
        """The configurations to begin with."""
        return tool_configs()

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A run starts."""
        self.player = ToolPlayer(data.draw(self.configs()))

    @rule(move=tool_moves())
    def anything(self, move: Move) -> None:
        """Whatever may happen next."""
        self._play(move)
