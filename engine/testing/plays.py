"""Playing a script to the end of its run, whichever loop it is for. Needs no Hypothesis."""

from typing import Any

from stepfold.engine.testing.moves import Script
from stepfold.engine.testing.player import GoalPlayer
from stepfold.engine.testing.tool_player import ToolPlayer
from stepfold.events.configuration import GoalConfig


def play(script: Script) -> Any:
    """Play a script to its end; the player, for its log. Raises Broken, and what the engine raises."""
    config = script.config
    player = GoalPlayer(config) if isinstance(config, GoalConfig) else ToolPlayer(config)
    try:
        for move in script.moves:
            player.move(move)
        player.finish()
    finally:
        player.close()
    return player
