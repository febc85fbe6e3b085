"""What reaches into a run from outside: a token that cancels it, and a handle that steers it."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from stepfold.events.vocabulary import Command

COMMANDS = ("pause", "resume", "cancel", "inject", "redirect")


Listener = Callable[[tuple[Command, ...]], None]
_Entry = tuple[asyncio.AbstractEventLoop, Listener]


class _Outlet:
    """Hands what is said to the run that listens, from whatever thread; keeps it until one does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[_Entry] = []
        self._kept: list[tuple[Command, ...]] = []

    def say(self, batch: tuple[Command, ...]) -> None:
        with self._lock:
            listeners = list(self._listeners)
            if not listeners:
                self._kept.append(batch)
        for loop, listener in listeners:
            if loop is _running_loop():
                listener(batch)
            else:
                # A loop that closed in this moment has no run that could hear.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(listener, batch)

    def listen(self, listener: Listener) -> Callable[[], None]:
        entry = (asyncio.get_running_loop(), listener)
        with self._lock:
            self._listeners.append(entry)
            kept, self._kept = self._kept, []
        for batch in kept:
            listener(batch)
        return lambda: self._leave(entry)

    def _leave(self, entry: "_Entry") -> None:
        with self._lock:
            self._listeners.remove(entry)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class CancellationToken:
    """Cancels the runs that were started with it, and their sub-agents. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, tuple[asyncio.AbstractEventLoop, Callable[[str], None]]] = {}
        self.cancelled = False
        self.reason = ""

    def cancel(self, reason: str = "") -> None:
        """Ask for the end. What flies is given up; the log stays whole."""
        with self._lock:
            if self.cancelled:
                return
            self.cancelled, self.reason = True, reason
            listeners = list(self._listeners.values())
        for loop, listener in listeners:
            # A loop that closed in this moment has no run that could hear.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(listener, reason)

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Be told of the cancel, now if it has happened already. Returns what stops the listening."""
        entry = object()
        with self._lock:
            self._listeners[entry] = (asyncio.get_running_loop(), listener)
            cancelled = self.cancelled
        if cancelled:
            listener(self.reason)
        return lambda: self._leave(entry)

    def _leave(self, entry: object) -> None:
        with self._lock:
            self._listeners.pop(entry, None)


class SteeringHandle:
    """Steers one run, at its safe checkpoints only. `allow` names the commands it may give; none by default.

    A batch that holds a forbidden command applies none of its commands.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self.allowed = frozenset(allow)
        unknown = self.allowed - set(COMMANDS)
        if unknown:
            raise ValueError(
                f"no such steering command: {', '.join(sorted(unknown))}; there are {', '.join(COMMANDS)}"
            )
        self._outlet = _Outlet()

    def send(self, *commands: Command) -> None:
        """Give a batch of commands."""
        self._outlet.say(commands)

    def pause(self, reason: str = "") -> None:
        """Let the run rest before its next model call."""
        self.send(Command("pause", reason))

    def resume(self) -> None:
        """Let a paused run go on."""
        self.send(Command("resume"))

    def cancel(self) -> None:
        """End the run."""
        self.send(Command("cancel"))

    def inject(self, text: str) -> None:
        """Put a user message before the next model call."""
        self.send(Command("inject", text))

    def redirect(self, text: str) -> None:
        """Put a system message before the next model call."""
        self.send(Command("redirect", text))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Be handed each batch. Returns what stops the listening."""
        return self._outlet.listen(listener)
