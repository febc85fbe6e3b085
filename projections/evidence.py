"""What the acceptance checks showed, and whether it still counts."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from stepfold.events.configuration import CheckSpec


class Evidence(Struct, frozen=True, gc=False):
    """One result of a check. `mutations` is how many changes of the workspace were known by then, and
    `workspace` the digest of its files after the check; empty when nobody looked.
    """

    check_id: str
    command: str
    exit_code: int | None
    digest: str
    step: int
    mutations: int
    workspace: str = ""

    @property
    def passed(self) -> bool:
        """Exit code 0 and nothing else."""
        return self.exit_code == 0

    def is_fresh(self, mutations: int) -> bool:
        """Evidence goes stale as soon as the workspace changes, by a call, by another check, or from outside.

        A check that rewrote a source file left the evidence of the check before it standing, and a run
        completed on files that no check had seen.
        """
        return self.mutations == mutations

    def is_about_other_files(self, workspace: str, mutations: int) -> bool:
        """Whether this evidence is fresh and was taken from other files than those of digest `workspace`."""
        return self.is_fresh(mutations) and bool(workspace and self.workspace) and workspace != self.workspace


def unmet(checks: Sequence[CheckSpec], evidence: Mapping[str, Evidence], mutations: int) -> tuple[str, ...]:
    """The ids of the checks without fresh passing evidence, in the order of the configuration."""
    return tuple(check.id for check in checks if not _met(evidence.get(check.id), mutations))


def _met(evidence: Evidence | None, mutations: int) -> bool:
    return evidence is not None and evidence.passed and evidence.is_fresh(mutations)


def workspace_of(evidence: Mapping[str, Evidence], mutations: int) -> str:
    """The digest of the files that fresh evidence is about; empty when there is none to keep."""
    fresh = (item.workspace for item in evidence.values() if item.is_fresh(mutations))
    return next((workspace for workspace in fresh if workspace), "")


def listed(evidence: Iterable[Evidence], mutations: int) -> list[dict[str, object]]:
    """Evidence as the outcome shows it."""
    return [
        {
            "check_id": item.check_id,
            "command": item.command,
            "exit_code": item.exit_code,
            "digest": item.digest,
            "step": item.step,
            "fresh": item.is_fresh(mutations),
        }
        for item in evidence
    ]
