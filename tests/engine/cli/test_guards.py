"""The loop's guards, as a person meets them: what the transcript says, how the run ends."""

from tests.engine.cli.projects import FINISH, LOAD_FILES, REPAIR, VERIFY, Project, action, load

SEARCH = action("capability_search", query="read files")
TEN = (
    "fs.list, fs.read, fs.search, fs.write, fs.patch, shell.run, git.status, git.diff, web.fetch, "
    "memory.recall"
)


def without_checks(project: Project) -> None:
    """Leave nothing that could verify the goal by itself."""
    project.configure("")
    (project.folder / "test_calc.py").unlink()


def test_verify_twice_in_a_row_without_a_verifier_hands_the_run_back(project: Project) -> None:
    without_checks(project)

    result = project.run(VERIFY, VERIFY, FINISH)

    assert result.code == 4
    assert (result.json["finish"], result.json["status"], result.json["steps"]) == (
        "missing_evidence",
        "missing_evidence",
        2,
    )
    line = "loop_guard=repeated verify without automatic verifier; stopping for user direction"
    assert line in project.transcript().splitlines()
    assert [event["kind"] for event in project.events()[-2:]] == ["ObservationRecorded", "RunFinished"]
    assert project.events()[-1]["status"] == "missing_evidence"


def test_a_rejected_reply_between_two_equal_actions_breaks_nothing(project: Project) -> None:
    without_checks(project)

    result = project.run(VERIFY, "no JSON", VERIFY)

    assert (result.code, result.json["status"], result.json["rejected"]) == (4, "missing_evidence", 1)


def test_verify_twice_with_a_verifier_goes_on(project: Project) -> None:
    result = project.run(VERIFY, VERIFY, LOAD_FILES, REPAIR, VERIFY, FINISH)

    assert (result.code, result.json["steps"]) == (0, 6)
    assert project.events("GuardTripped") == []


def test_a_repeated_search_runs_the_missing_checks_and_goes_on_where_they_fail(project: Project) -> None:
    result = project.run(SEARCH, SEARCH, LOAD_FILES, REPAIR, VERIFY, FINISH)

    assert (result.code, result.json["steps"]) == (0, 6)
    assert [event["guard"] for event in project.events("GuardTripped")] == ["search_repeats"]
    assert [event["passed"] for event in project.events("EvidenceRecorded")] == [False, True]
    assert "loop_guard=repeated capability_search" in project.transcript()


def test_a_repeated_search_with_checks_that_pass_finishes_completed(project: Project) -> None:
    result = project.run(LOAD_FILES, REPAIR, SEARCH, SEARCH, "never asked for")

    assert (result.code, result.json["finish"], result.json["steps"]) == (0, "completed", 4)
    assert project.events("FinishAccepted")[0]["by"] == "search_repeats"
    assert result.json["evidence"][0]["fresh"] is True


def test_a_repeated_search_over_fresh_evidence_runs_no_check_again(project: Project) -> None:
    result = project.run(LOAD_FILES, REPAIR, VERIFY, SEARCH, SEARCH)

    assert result.code == 0
    assert len(project.events("CheckStarted")) == 1


def test_an_unknown_capability_is_acknowledged_and_not_fatal(project: Project) -> None:
    result = project.run(load("fs.read", "fs.teleport", "telepathy"), FINISH, options=["--max-steps", 2])

    assert result.code == 4
    transcript = project.transcript().splitlines()
    assert "capability_load_ack=fs.read" in transcript
    assert (
        f"capability_load_failed=fs.teleport,telepathy (unknown capability). Loadable capabilities: {TEN}"
        in transcript
    )


def test_a_load_of_known_names_is_acknowledged_alone(project: Project) -> None:
    project.run(LOAD_FILES, options=["--max-steps", 1])

    transcript = project.transcript()
    assert "capability_load_ack=fs.read,fs.write,shell.run" in transcript.splitlines()
    assert "capability_load_failed" not in transcript


def test_finish_without_evidence_is_rejected_with_the_ids_unmet(project: Project) -> None:
    project.configure(
        '[[checks]]\nid = "first"\ncommand = "true"\n[[checks]]\nid = "second"\ncommand = "false"\n'
        '[[checks]]\nid = "third"\ncommand = "exit 7"\n'
    )

    result = project.run(VERIFY, FINISH, options=["--max-steps", 2])

    assert (result.code, result.json["unmet"]) == (4, ["second", "third"])
    assert project.events("FinishRejected")[0]["unmet"] == ["second", "third"]
    assert "unmet checks: second, third" in project.ask("show", "last").text
    assert [item["exit_code"] for item in result.json["evidence"]] == [0, 1, 7]


def test_a_call_to_what_is_not_loaded_is_rejected_and_the_run_goes_on(project: Project) -> None:
    result = project.run(REPAIR, LOAD_FILES, REPAIR, VERIFY, FINISH)

    assert result.code == 0
    (rejected,) = project.events("ToolRejected")
    assert (rejected["name"], rejected["hop"]) == ("fs.write", "gate")


def test_the_policy_is_asked_before_a_command_runs(project: Project) -> None:
    project.configure(
        '[policy.shell]\ndeny = ["rm"]\n[[checks]]\nid = "there"\ncommand = "test -f calc.py"\n'
    )
    remove = action("capability_call", capability="shell.run", arguments={"command": "rm calc.py"})

    result = project.run(LOAD_FILES, remove, VERIFY, FINISH)

    assert result.code == 0
    assert project.events("ToolRejected")[0]["hop"] == "policy"
    assert (project.folder / "calc.py").exists()


def test_a_worker_is_refused_while_there_is_no_slot(project: Project) -> None:
    result = project.run(action("worker_dispatch", task="count the tests"), options=["--max-steps", 1])

    assert result.code == 4
    assert project.events("ToolRejected")[0]["name"] == "worker_dispatch"


def test_a_memory_is_recalled_by_the_next_run(project: Project) -> None:
    project.run(
        action("memory_write", text="the test of the sum is test_calc.py"), options=["--max-steps", 1]
    )
    second = project.run(FINISH, options=["--max-steps", 1]).json["run_id"]

    assert "the test of the sum is test_calc.py" in project.ask("prompt", second, "--step", 1).text
