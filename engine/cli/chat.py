"""`stepfold chat`: a conversation in a project, its commands, and what a person reads of it."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import click

from stepfold.engine.cli.model import model_for
from stepfold.engine.cli.narration import narrate
from stepfold.engine.cli.output import note, say, visible, visible_line
from stepfold.engine.cli.person import Person
from stepfold.engine.cli.reading import chosen_store, existing_store
from stepfold.engine.cli.run import project_folder
from stepfold.engine.core.profile import PROFILES
from stepfold.engine.runtime.chat import Chat
from stepfold.engine.runtime.configured import loop_of
from stepfold.engine.runtime.settings_file import read_settings
from stepfold.engine.runtime.undo import CannotUndo
from stepfold.events.vocabulary import AnyEvent, CancelRequested
from stepfold.projections.fold_repeats import GUARDS
from stepfold.projections.outcome import LoopOutcome, outcome

STOPPED = 130


@click.command(epilog="Example: stepfold chat --project . --model http://localhost:8080/v1#qwen")
@click.option("--project", default=".", metavar="DIR", help="The project to talk about [the current folder].")
@click.option("--model", metavar="MODEL", help="URL#NAME, script:FILE or trace:FILE.")
@click.option("--resume", "run_id", metavar="RUN", help="Go on with a recorded chat: its id, or `last`.")
@click.option("--max-steps", type=click.IntRange(1), metavar="N", help="Model replies a turn at most [80].")
@click.option("--profile", type=click.Choice(PROFILES), help="The kind of task [read off the first words].")
@click.option("--store", metavar="DIR", help="Where runs are kept [STEPFOLD_STORE, else .stepfold].")
def chat(
    project: str,
    model: str | None,
    run_id: str | None,
    max_steps: int | None,
    profile: str | None,
    store: str | None,
) -> int:
    """Talk with a model that works in a project, one strict action a step.

    The chat is a recorded run. /help lists its commands; Ctrl-C stops what the model does, and not the
    chat. Commands that the policy marks `ask` wait for your yes. Standard input may be a pipe, a line a
    message. Exit codes: 0, 1 when the model gave no reply to the last message or a guard ended its turn,
    130 when stopped.
    """
    folder = project_folder(project)
    settings = read_settings(folder)
    answering = model_for(model, settings)
    with (chosen_store if run_id is None else existing_store)(store, folder) as opened:
        chosen = "" if run_id is None else opened.find(run_id)
        person = Person()
        ends = _Ends()
        loop = loop_of(
            settings, folder, answering, opened, watch=ends.told, max_steps=max_steps, profile=profile
        )
        with loop.chat(person.approve, run_id=chosen) as talk:
            note(f"chat with {answering.name} in {folder}; /help lists the commands")
            if chosen:
                _take_up(talk)
            return _converse(talk, person, ends, opened.path_of(talk.run_id))


class _Ends:
    """Narrates, and notes when somebody wants the process to end, and not only the turn."""

    def __init__(self) -> None:
        self.wanted = False

    def told(self, event: AnyEvent) -> None:
        """The StepObserver of a chat."""
        narrate(event)
        if isinstance(event, CancelRequested) and event.reason in {"SIGTERM", "SIGHUP"}:
            self.wanted = True


def _take_up(talk: Chat) -> None:
    talk.reopen()
    turns = [turn for turn in talk.run.history.turns if turn.role == "user"]
    note(f"run {talk.run_id}, {len(turns)} messages so far")
    if talk.in_a_turn:
        note("its last turn was cut off, and goes on")
        _show(talk, _acted(talk, talk.go_on))
    elif talk.run.goal.summary:
        say(talk.run.goal.summary)


def _converse(talk: Chat, person: Person, ends: _Ends, log: Path) -> int:
    while not ends.wanted:
        try:
            line = person.next_line()
        except KeyboardInterrupt:
            note("\n/quit leaves the chat")
            continue
        text = "/quit" if line is None else line.strip()
        if not text:
            continue
        if text.startswith("/"):
            try:
                if not _obey(text, talk):
                    break
            except KeyboardInterrupt:
                note("stopped")
            continue
        _show(talk, _acted(talk, partial(talk.say, text)))
    if talk.run.seq:
        note(f"log       {log}")
        note(f"go on     stepfold chat --resume {talk.run_id}")
    if ends.wanted:
        return STOPPED
    return 1 if talk.run.fault and not talk.run.cancel else 0


def _acted(talk: Chat, act: Callable[[], LoopOutcome]) -> LoopOutcome:
    """A turn. A second Ctrl-C comes as Python's own interrupt, once the turn has ended."""
    try:
        return act()
    except KeyboardInterrupt:
        return outcome(talk.run)


def _show(talk: Chat, result: LoopOutcome) -> None:
    if talk.run.cancel:
        note("stopped")
    elif result.guard:
        note(f"a guard ended the turn: {GUARDS.get(result.guard, result.reason)}")
    elif result.error:
        note(f"the model gave no reply: {result.reason}")
    else:
        say(result.summary or "(the turn ended without an answer)")
    if result.unmet and result.mutations:
        note(f"not verified: {', '.join(result.unmet)}")


def _obey(line: str, talk: Chat) -> bool:
    """Carry out a slash command; False when it ends the chat."""
    name, *arguments = line.split()
    if name == "/quit":
        return False
    command = COMMANDS.get(name)
    if command is None:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else "/help lists the commands"
        note(f"{visible_line(name)}: no such command; {hint}")
        return True
    command[1](talk, arguments)
    return True


def _help(talk: Chat, arguments: list[str]) -> None:
    for name, (text, _) in COMMANDS.items():
        say(f"{name:<8} {text}")


def _tools(talk: Chat, arguments: list[str]) -> None:
    for name, (manifest, loaded) in talk.capabilities().items():
        say(f"{'*' if loaded else ' '} {name:<14} {' '.join(manifest.description.split())}")


def _load(talk: Chat, arguments: list[str]) -> None:
    there = talk.capabilities()
    unknown = [name for name in arguments if name not in there]
    if unknown or not arguments:
        what = f"there is no {', '.join(unknown)}" if unknown else "name what to load"
        note(f"{what}; there are: {', '.join(there)}")
        return
    talk.load(arguments)
    note(f"loaded {', '.join(arguments)}")


def _undo(talk: Chat, arguments: list[str]) -> None:
    try:
        note(talk.undo())
    except CannotUndo as reason:
        note(str(reason))


def _save(talk: Chat, arguments: list[str]) -> None:
    if len(arguments) != 1:
        note("name one file: /save FILE")
        return
    if not talk.run.seq:
        note("nothing was said yet, so there is nothing to save")
        return
    path = Path(arguments[0])
    text = "\n".join(("user: " + talk.run.history.turns[0].content, *talk.run.goal.transcript, ""))
    try:
        with path.open("x", encoding="utf-8", errors="replace") as file:
            file.write(visible(text))
    except OSError as error:
        note(f"{path}: can't be written: {error.strerror}; name another file")
        return
    note(f"saved {path}")


COMMANDS: dict[str, tuple[str, Callable[[Chat, list[str]], None]]] = {
    "/load": ("NAME…: load capabilities, so that the model may call them at once", _load),
    "/tools": ("the capabilities; * marks what is loaded", _tools),
    "/undo": ("take back the last change of a file that the model made", _undo),
    "/save": ("FILE: write the transcript into a new file", _save),
    "/help": ("this list", _help),
    "/quit": ("leave; `stepfold chat --resume RUN` goes on later", _help),
}
