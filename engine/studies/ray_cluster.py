"""Tasks over the machines of a Ray cluster. Only this module imports Ray, and only when it is asked for.

A task is a callable without arguments that pickle takes; stepfold is installed on every machine. A task
whose machine or process dies is started again on another one, so it may be begun more than once: tasks
leave nothing behind but their result. What they print on stderr is printed here.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from stepfold.engine.runtime.settings import SettingsError

TRIES_AGAIN = 5
"""How often a task whose process or machine dies is begun anew before the whole is given up."""

Result = TypeVar("Result")


class Cluster:
    """The cluster that RAY_ADDRESS names, else the one that runs on this machine, else a new local one."""

    def __init__(self, in_flight: int | None = None) -> None:
        """`in_flight` tasks at a time; None means one for each processor. Raises SettingsError."""
        try:
            import ray
        except ImportError as error:
            raise SettingsError("--on ray needs Ray: run `pip install 'stepfold[ray]'`") from error
        self._ray: Any = ray
        try:
            if not ray.is_initialized():
                ray.init(log_to_driver=True, logging_level="error")
        except (ConnectionError, RuntimeError, OSError, ValueError) as error:
            said = " ".join(str(error).split())
            raise SettingsError(f"--on ray: the cluster can't be reached: {said}") from error
        self._run = ray.remote(num_cpus=1, max_retries=TRIES_AGAIN)(_called)
        self._in_flight = in_flight or max(1, int(ray.cluster_resources().get("CPU", 1)))

    def as_they_end(self, tasks: Iterable[Callable[[], Result]]) -> Iterator[tuple[int, Result]]:
        """The number of each task and its result, as soon as it is there.

        Raises what a task raises, and SettingsError when its machines die again and again.
        """
        left = iter(enumerate(tasks))
        flying: dict[Any, int] = {}
        try:
            while True:
                for number, task in islice(left, self._in_flight - len(flying)):
                    flying[self._run.remote(task)] = number
                if not flying:
                    return
                (landed, *_), _ = self._ray.wait(list(flying), num_returns=1)
                yield flying.pop(landed), self._result_of(landed)
        finally:
            for one in flying:
                self._ray.cancel(one, force=True)

    def in_order(self, tasks: Iterable[Callable[[], Result]]) -> Iterator[Result]:
        """The results in the order of the tasks."""
        early: list[tuple[int, Any]] = []
        due = 0
        for number, result in self.as_they_end(tasks):
            heapq.heappush(early, (number, _Held(result)))
            while early and early[0][0] == due:
                due += 1
                yield heapq.heappop(early)[1].result

    def _result_of(self, landed: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(landed)
        except errors.RayTaskError as error:
            raise error.cause from None
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError) as error:
            said = str(error).splitlines()[0]
            raise SettingsError(
                f"--on ray: a task was begun {TRIES_AGAIN + 1} times, and its machine died each time: {said}"
            ) from error


class _Held:
    """A result in a heap, which never asks which of two is less."""

    def __init__(self, result: Any) -> None:
        self.result = result


def _called(task: Callable[[], Result]) -> Result:
    return task()
