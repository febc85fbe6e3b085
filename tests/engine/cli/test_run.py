"""`stepfold run`: each way a run can end, its exit code, and exactly what `--json` prints."""

import pytest

from tests.engine.cli.projects import (
    BREAK,
    FINISH,
    GOAL,
    LOAD_FILES,
    OUTCOME_KEYS,
    REPAIR,
    UNIT,
    VERIFY,
    Project,
    action,
    is_whole,
)

ASK = action("ask_user", question="which of the two?")
PROSE = "Let me think about that first."


def test_a_real_repair_is_verified_by_a_real_test_and_completes(project: Project) -> None:
    project.configure(UNIT)

    result = project.run(LOAD_FILES, VERIFY, REPAIR, VERIFY, FINISH)

    assert result.code == 0
    outcome = result.json
    assert list(outcome) == OUTCOME_KEYS
    assert (outcome["finish"], outcome["status"]) == ("completed", "completed")
    assert (outcome["steps"], outcome["actions"], outcome["rejected"]) == (5, 5, 0)
    assert outcome["summary"] == "all done"
    assert outcome["unmet"] == []
    (evidence,) = outcome["evidence"]
    assert list(evidence) == ["check_id", "command", "exit_code", "digest", "step", "fresh"]
    assert [evidence[key] for key in ("check_id", "exit_code", "step", "fresh")] == ["unit", 0, 4, True]
    assert list(outcome["usage"]) == [
        "model_calls",
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "estimated",
    ]
    assert outcome["trace"] == str(project.trace)
    assert outcome["store"] == str(project.store)
    assert "return a + b" in (project.folder / "calc.py").read_text()
    assert is_whole(project.trace)


def test_people_read_on_stdout_why_it_ended(project: Project) -> None:
    result = project.stepfold(
        "run",
        GOAL,
        "--project",
        project.folder,
        "--model",
        project.script(LOAD_FILES, REPAIR, VERIFY, FINISH),
    )

    assert result.code == 0
    first, *_ = result.text.splitlines()
    assert first == "completed every acceptance check passed"
    assert "check     sum: passed at step 3" in result.text
    assert str(project.trace) in result.text


def test_a_model_that_fails_for_good_ends_failed(project: Project) -> None:
    result = project.run(VERIFY, {"error": {"kind": "auth", "detail": "no key"}})

    assert result.code == 1
    assert (result.json["finish"], result.json["status"]) == ("failed", "failed")
    assert project.events()[-1]["kind"] == "RunFinished"
    assert project.events("ModelErred")[0]["detail"] == "no key"


def test_a_script_that_is_too_short_says_so(project: Project) -> None:
    result = project.run(VERIFY)

    assert result.code == 1
    assert "has 1 line, and this is model call 2" in project.events("ModelErred")[0]["detail"]


def test_the_step_cap_ends_without_a_terminal_event(project: Project) -> None:
    result = project.run(*[VERIFY, LOAD_FILES] * 3, options=["--max-steps", 4])

    assert result.code == 4
    assert (result.json["finish"], result.json["status"]) == ("missing_evidence", "step_cap")
    assert (result.json["steps"], result.json["unmet"]) == (4, ["sum"])
    assert project.events("RunFinished") == []
    assert project.events()[-1]["guard"] == "steps_spent"


def test_a_question_rests_and_its_answer_goes_on(project: Project) -> None:
    replies = (LOAD_FILES, ASK, REPAIR, VERIFY, FINISH)

    asked = project.run(*replies)
    assert asked.code == 5
    assert (asked.json["finish"], asked.json["steps"]) == ("awaiting_user", 2)
    before = project.trace.read_bytes()

    model = project.script(*replies)
    done = project.stepfold(
        "resume", "last", "--project", project.folder, "--model", model, "--answer", "the second", "--json"
    )

    assert done.code == 0
    assert list(done.json) == OUTCOME_KEYS
    assert (done.json["finish"], done.json["steps"], done.json["run_id"]) == (
        "completed",
        5,
        asked.json["run_id"],
    )
    assert project.trace.read_bytes().startswith(before)
    assert project.events("UserAnswered")[0]["text"] == "the second"
    assert project.ask("replay", project.trace).code == 0
    assert "the second" in project.ask("prompt", "last", "--step", 3).text


def test_a_question_that_is_resumed_without_an_answer_still_waits(project: Project) -> None:
    project.run(ASK)
    before = project.trace.read_bytes()

    result = project.stepfold(
        "resume", "last", "--project", project.folder, "--model", project.script(ASK), "--json"
    )

    assert result.code == 5
    assert project.trace.read_bytes() == before


def test_rejected_replies_use_up_steps_and_are_no_actions(project: Project) -> None:
    result = project.run(PROSE, "", '{"name": "fs.read", "arguments": {}}', PROSE, options=["--max-steps", 4])

    assert result.code == 4
    assert (result.json["steps"], result.json["actions"], result.json["rejected"]) == (4, 0, 4)
    assert [event["error"] for event in project.events("ActionRejected")] == [
        "NotJson", "Empty", "UnknownTool", "NotJson",
    ]  # fmt: skip


def test_evidence_is_stale_after_a_write(project: Project) -> None:
    result = project.run(LOAD_FILES, REPAIR, VERIFY, BREAK, FINISH, options=["--max-steps", 5])

    assert result.code == 4
    assert result.json["unmet"] == ["sum"]
    (evidence,) = result.json["evidence"]
    assert (evidence["exit_code"], evidence["fresh"]) == (0, False)
    assert project.events("FinishRejected")[0]["unmet"] == ["sum"]
    assert ", stale" in project.transcript()


def test_without_any_check_finish_is_taken_at_its_word(project: Project) -> None:
    project.configure("")
    (project.folder / "test_calc.py").unlink()

    result = project.run(FINISH)

    assert (result.code, result.json["evidence"]) == (0, [])
    assert "taken at its word" in project.transcript()


def test_the_profile_is_the_callers_or_read_off_the_goal(project: Project) -> None:
    project.run(FINISH, options=["--profile", "writing", "--max-steps", 1])

    (event,) = project.events("ProfileInferred")
    assert (event["profile"], event["source"]) == ("writing", "caller")


def test_structured_calls_are_held_to_the_same_contract(project: Project) -> None:
    function = {"name": "finish", "arguments": '{"summary": "done", "more": 1}'}
    message = {"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": function}]}

    result = project.run({"message": message}, options=["--max-steps", 1])

    assert result.json["rejected"] == 1
    assert project.events("ActionRejected")[0]["error"] == "SchemaInvalid"


def test_a_recorded_run_is_a_model_for_the_next_one(project: Project) -> None:
    first = project.run(LOAD_FILES, REPAIR, VERIFY, FINISH)

    again = project.stepfold(
        "run", GOAL, "--project", project.folder, "--model", f"trace:{first.json['trace']}", "--json"
    )

    assert (again.code, again.json["steps"]) == (0, 4)
    assert again.json["run_id"] != first.json["run_id"]


def test_the_store_may_lie_anywhere(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = project.folder.parent / "elsewhere"
    monkeypatch.setenv("STEPFOLD_STORE", str(elsewhere))

    result = project.run(FINISH, options=["--max-steps", 1])

    assert result.json["store"] == str(elsewhere)
    assert not project.store.exists()


def test_nothing_of_a_key_reaches_the_log(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    project.run(
        LOAD_FILES, action("capability_call", capability="shell.run", arguments={"command": "env"}), FINISH
    )

    assert b"sk-very-secret" not in project.trace.read_bytes()
    assert project.events("ToolReturned")[0]["content"].startswith("exit_code=0")
