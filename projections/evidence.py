"""What the acceptance checks showed, and whether it still counts."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from stepfold.events.configuration import CheckSpec


class Evidence(Struct, frozen=True, gc=False):
    """One result of a check. `mutations` is how many calls had changed the workspace by then."""

    check_id: str
    command: str
    exit_code: int | None
    digest: str
    step: int
    mutations: int

    @property
    def passed(self) -> bool:
        """Exit code 0 and nothing else."""
        return self.exit_code == 0

    def is_fresh(self, mutations: int) -> bool:
        """Evidence goes stale as soon as a later call changes the workspace."""
        return self.mutations == mutations


def unmet(checks: Sequence[CheckSpec], evidence: Mapping[str, Evidence], mutations: int) -> tuple[str, ...]:
    """The ids of the checks without fresh passing evidence, in the order of the configuration."""
    return tuple(check.id for check in checks if not _met(evidence.get(check.id), mutations))


def _met(evidence: Evidence | None, mutations: int) -> bool:
    return evidence is not None and evidence.passed and evidence.is_fresh(mutations)


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
