"""eventsourcing: an aggregate whose events are saved into SQLite, two a step."""

# /// script
# dependencies = ["eventsourcing"]
# ///
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from peer import main, result


class Run(Aggregate):
    """The messages of a run."""

    @event("Started")
    def __init__(self, goal: str) -> None:
        self.goal = goal
        self.messages: list[str] = []

    @event("ToolCalled")
    def called(self, i: int, name: str) -> None:
        """The model has asked for its tool."""
        self.messages.append(name)

    @event("ToolReturned")
    def returned(self, i: int, text: str) -> None:
        """The tool has answered."""
        self.messages.append(text)


def run(steps: int, settings: dict[str, str]) -> None:
    """Every event is saved before the next one."""
    application: Application = Application(settings)
    run = Run(goal="go")
    application.save(run)
    for step in range(steps):
        run.called(i=step, name="look")
        application.save(run)
        run.returned(i=step, text=result(step))
        application.save(run)
    application.close()


def sqlite(steps: int, folder: str) -> None:
    """Its SQLite recorder, as it comes: synced at every save."""
    name = f"{folder}/events.sqlite"
    run(steps, {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": name})


main(
    {
        "memory": lambda steps, folder: run(steps, {"PERSISTENCE_MODULE": "eventsourcing.popo"}),
        "sqlite": sqlite,
    }
)
