"""The command `stepfold`: its commands by name, loaded when called, and the one place that reports errors."""

import errno
import os
import sys
import warnings
from importlib import import_module
from typing import Any, TextIO

import click

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "demo:demo",
        "See the main job run: a failing test, a small model's replies, a verified finish.",
    ),
    "run": ("run:run", "Work towards a goal in a project, one strict action a step."),
    "chat": ("chat:chat", "A conversation about a project, recorded like any run."),
    "resume": ("run:resume", "Go on with a run after a crash or a question."),
    "parse": ("parse:parse", "Check a model's reply against the strict action contract."),
    "runs": ("show:runs", "List the runs of the store."),
    "show": ("show:show", "Why did it end? The outcome and the transcript of a run."),
    "log": ("log:log", "The events of a run, byte for byte as recorded."),
    "prompt": ("show:prompt", "Exactly what the model was sent at a step, rebuilt from the log."),
    "view": ("view:view", "Runs as one self-contained page: why each ended, step by step."),
    "replay": ("replay:replay", "Regenerate recorded runs without a model, and compare."),
    "diff": ("studies:diff", "Two runs side by side from their first difference."),
    "judge": ("studies:judge", "What if? Recorded runs under other caps, policies or options."),
    "eval": ("eval:evaluate", "A suite of tasks, run many times and judged by checks no model sees."),
    "fork": ("fork:fork", "Branch off a recorded run, and go on from there."),
    "sql": ("sql:sql", "Ask DuckDB about all runs of the store."),
    "fuzz": ("fuzz:fuzz", "Search for what breaks your tools, the contract or the loop, and save it."),
    "import": ("imports:import_traces", "Take in other programs' traces as runs of the store."),
    "export": ("export:export", "Runs in other formats: Parquet, ATIF, OpenTelemetry, OpenAI messages."),
    "diagram": ("diagram:diagram", "The state machine as Mermaid, drawn from the table that runs."),
    "doctor": (
        "doctor:doctor",
        "Which sandbox, models and checks are there, and how to get what is missing.",
    ),
}
"""Where each command lives below `stepfold.engine.cli`, and its line in the help."""

USAGE_EXIT_CODE = 2


class LazyGroup(click.Group):
    """A group that imports a command when it is called: `stepfold --help` imports none of them."""

    def list_commands(self, context: click.Context) -> list[str]:
        """All names, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import the command that was called."""
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command: click.Command = getattr(import_module(f"stepfold.engine.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that was called. Raises UsageError, which names one that is like it."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            alike = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `stepfold {alike[0]}`?" if alike else "they are listed by `stepfold --help`"
            raise click.UsageError(f"there is no command {args[0]!r}: {hint}")
        return super().resolve_command(context, args)

    def invoke(self, context: click.Context) -> Any:
        """Run the command. Whoever reads our output may stop at any time; click would call that an error."""
        try:
            code = super().invoke(context)
            sys.stdout.flush()
        except BrokenPipeError:
            _silence_stdout()
            return 0
        except OSError as error:
            if error.filename or error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
                raise
            _silence_stdout()
            raise OutputLost(f"the output can't be written: {error.strerror}; free some space") from error
        return code

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The names and their lines, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(
    cls=LazyGroup, epilog='Example: stepfold run "make the tests pass" --model http://localhost:8080/v1'
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="stepfold")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Agent loops you can trust: one strict action per step, recorded whole, replayed without the model."""
    context.obj = debug


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. An error is one line on stderr; `--debug` shows its traceback."""
    debug = "--debug" in (sys.argv if arguments is None else arguments)
    warnings.showwarning = _show_warning
    try:
        code = cli.main(args=arguments, prog_name="stepfold", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        _show_usage(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        click.echo(f"stepfold: {_one_line(error)}", err=True)
        sys.exit(_code_of(error))
    sys.exit(code if isinstance(code, int) else 0)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What the engine warns of is for people; any other warning is Python's and says where it comes from."""
    if category.__module__.startswith("stepfold."):
        click.echo(f"stepfold: {message}", err=True)
    else:
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


class OutputLost(Exception):
    """Whoever asked can't be told: their disk is full."""


def _silence_stdout() -> None:
    """Python flushes once more when it exits, and would complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_usage(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        # Its message is the whole help: it is read in lines.
        click.echo(error.format_message(), err=True)
        return
    hint = f" (see `{context.command_path} --help`)" if context is not None else ""
    click.echo(f"stepfold: {' '.join(error.format_message().split())}{hint}", err=True)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if _is_ours(error):
        return text
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return f"unexpected {type(error).__name__}: {text}; run again with --debug, and please report it"


def _is_ours(error: Exception) -> bool:
    return type(error).__module__.startswith("stepfold.")


def _code_of(error: Exception) -> int:
    return USAGE_EXIT_CODE if _is_ours(error) or isinstance(error, OSError) else 1
