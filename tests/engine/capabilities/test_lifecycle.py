import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepfold.engine.capabilities.lifecycle import Admitted, Refused, admit
from stepfold.engine.capabilities.manifests import NATIVE_BY_NAME
from stepfold.events.configuration import Manifest, Rule

ODD = Manifest(
    name="mcp.s.do_it", description="", schema=msgspec.Raw(b'{"type": "object"}'), hidden=("token",)
)
TWIN = Manifest(name="mcp.s.do.it", description="", schema=msgspec.Raw(b'{"type": "object"}'))
MANIFESTS = {**NATIVE_BY_NAME, ODD.name: ODD}


def tried(name: str, arguments: Any, **changes: Any) -> Admitted | Refused:
    given_: dict[str, Any] = {
        "manifests": MANIFESTS,
        "loaded": set(MANIFESTS),
        "policy": (),
        "sandbox": "bubblewrap",
        "sandbox_required": True,
        "network": False,
    }
    return admit(name, arguments, **(given_ | changes))


def admitted(name: str, arguments: Any, **changes: Any) -> Admitted:
    outcome = tried(name, arguments, **changes)
    assert isinstance(outcome, Admitted), outcome
    return outcome


def refused(name: str, arguments: Any, **changes: Any) -> Refused:
    outcome = tried(name, arguments, **changes)
    assert isinstance(outcome, Refused), outcome
    return outcome


def test_a_call_that_is_right_passes_unchanged() -> None:
    assert admitted("fs.read", {"path": "a.py"}) == Admitted("fs.read", b'{"path":"a.py"}')


def test_the_arguments_that_will_run_are_canonical() -> None:
    assert admitted("fs.write", {"path": "b", "content": "x"}).arguments == b'{"content":"x","path":"b"}'


@pytest.mark.parametrize(
    "name",
    [
        "FS.Read",
        " fs.read ",
        "functions.fs.read",
        "functions.fs_read",
        "fs_read",
        "fs-read",
        "fs/read",
        "fs:read",
    ],
)
def test_a_name_is_read_whatever_its_joints(name: str) -> None:
    outcome = admitted(name, {"path": "a"})
    assert outcome.name == "fs.read"
    assert outcome.changed
    assert "fs.read" in outcome.notes[0]


def test_a_name_that_could_be_two_is_refused_with_both() -> None:
    outcome = refused("mcp_s_do_it", {}, manifests=MANIFESTS | {TWIN.name: TWIN})
    assert outcome.hop == "name"
    assert "mcp.s.do_it" in outcome.reason
    assert "mcp.s.do.it" in outcome.reason


@pytest.mark.parametrize("name", ["", "  ", "fs.\0read", "x" * 5_000])
def test_what_is_no_name_is_refused_at_the_name(name: str) -> None:
    assert refused(name, {}).hop == "name"


def test_an_unknown_name_gets_the_list_of_names() -> None:
    outcome = refused("fs.delete", {"path": "a"})
    assert outcome.hop == "dispatch"
    assert "fs.patch" in outcome.reason


@pytest.mark.parametrize(
    ("name", "arguments", "becomes"),
    [
        ("fs.read", {"file": "a"}, {"path": "a"}),
        ("fs.read", {"filepath": "a", "start": 2}, {"path": "a", "start_line": 2}),
        ("shell.run", {"cmd": "ls"}, {"command": "ls"}),
        ("fs.write", {"filename": "a", "contents": "x"}, {"path": "a", "content": "x"}),
        (
            "fs.patch",
            {"path": "a", "old_string": "x", "new_string": "y"},
            {"path": "a", "old": "x", "new": "y"},
        ),
        ("fs.read", '{"path": "a"}', {"path": "a"}),
        ("fs.read", {"arguments": {"path": "a"}}, {"path": "a"}),
        ("fs.read", {"arguments": '{"file": "a"}'}, {"path": "a"}),
        ("mcp.s.do_it", {"token": "t", "x": 1}, {"x": 1}),
    ],
)
def test_the_form_of_arguments_is_put_right_and_noted(
    name: str, arguments: Any, becomes: dict[str, Any]
) -> None:
    outcome = admitted(name, arguments)
    assert json.loads(outcome.arguments) == becomes
    assert outcome.changed
    assert outcome.notes


def test_content_is_never_guessed_at() -> None:
    content = '{"path": "other"}'
    assert json.loads(admitted("fs.write", {"path": "a", "content": content}).arguments)["content"] == content
    assert refused("fs.read", {"path": "a", "start_line": "3"}).hop == "schema"


def test_an_alias_beside_its_key_is_left_for_the_schema() -> None:
    assert refused("fs.read", {"path": "a", "file": "b"}).hop == "schema"


@pytest.mark.parametrize(
    "arguments", ["a.py", "[1]", '{"path": "a", "path": "b"}', '{"path": NaN}', "null", ""]
)
def test_a_string_that_holds_no_object_is_refused(arguments: str) -> None:
    outcome = refused("fs.read", arguments)
    assert outcome.hop == "arguments"
    assert "path" in outcome.reason


def test_what_json_cannot_carry_is_refused() -> None:
    assert refused("mcp.s.do_it", {"x": "\ud800"}).hop == "arguments"


def test_a_capability_must_be_loaded_first() -> None:
    outcome = refused("fs.read", {"path": "a"}, loaded=())
    assert outcome.hop == "gate"
    assert "capability_load" in outcome.reason
    assert '"fs.read"' in outcome.reason


def test_the_schema_says_everything_that_is_wrong() -> None:
    outcome = refused("fs.patch", {"path": 1, "old": "", "extra": True})
    assert outcome.hop == "schema"
    assert "path, old, new" in outcome.reason


def test_the_policy_judges_shell_commands_alone() -> None:
    rules = (Rule("deny", "rm"),)
    assert refused("shell.run", {"command": "rm a"}, policy=rules).hop == "policy"
    assert admitted("shell.run", {"command": "ls"}, policy=rules)
    assert admitted("fs.search", {"pattern": "rm a"}, policy=rules)


def test_without_a_sandbox_a_command_is_refused_with_the_way_to_one() -> None:
    outcome = refused("shell.run", {"command": "ls"}, sandbox="")
    assert outcome.hop == "sandbox"
    assert "bubblewrap" in outcome.reason
    assert "stepfold.toml" in outcome.reason


def test_a_waived_sandbox_lets_commands_run() -> None:
    assert admitted("shell.run", {"command": "ls"}, sandbox="none", sandbox_required=False)
    assert admitted("fs.read", {"path": "a"}, sandbox="")


def test_the_network_is_off_unless_the_config_says_so() -> None:
    assert refused("web.fetch", {"url": "https://example.org"}).hop == "network"
    assert admitted("web.fetch", {"url": "https://example.org"}, network=True)


def test_the_first_hop_that_objects_decides() -> None:
    everything_wrong = {"loaded": (), "sandbox": "", "policy": (Rule("deny", "rm"),)}
    assert refused("shell.run", "rm", **everything_wrong).hop == "arguments"
    assert refused("shell.run", {}, **everything_wrong).hop == "gate"
    assert refused("shell.run", {}, **(everything_wrong | {"loaded": MANIFESTS})).hop == "schema"
    assert (
        refused("shell.run", {"command": "rm"}, **(everything_wrong | {"loaded": MANIFESTS})).hop == "policy"
    )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
keys = (
    st.sampled_from(["path", "file", "content", "old", "new", "command", "cmd", "url", "arguments"])
    | st.text()
)


@given(
    st.sampled_from(sorted(MANIFESTS)) | st.text(), st.dictionaries(keys, anything, max_size=4) | st.text()
)
def test_whatever_a_model_says_is_admitted_or_refused_with_a_reason(name: str, arguments: Any) -> None:
    match tried(name, arguments, policy=(Rule("deny", "rm -rf"),)):
        case Refused(reason=reason):
            assert reason
        case Admitted(name=known, arguments=canonical):
            again = admitted(known, json.loads(canonical))
            assert again.arguments == canonical
            assert not again.changed


def test_the_policy_of_capabilities_judges_names_and_the_first_rule_wins() -> None:
    rules = (Rule("deny", "fs.w*"), Rule("allow", "fs.*"))
    assert admitted("fs.read", {"path": "a"}, tool_policy=rules)
    denied = refused("fs_write", {"path": "a", "content": ""}, tool_policy=rules)
    assert (denied.hop, "'fs.w*'" in denied.reason) == ("policy", True)
    unlisted = refused("mcp.s.do_it", {}, tool_policy=rules)
    assert "not among the allowed capabilities: fs.*" in unlisted.reason


def test_a_capability_that_a_person_must_approve_is_refused_where_nobody_is_there() -> None:
    rules = (Rule("deny", "fs.patch"), Rule("ask", "fs.*"))
    assert admitted("fs.read", {"path": "a"}, tool_policy=rules, attended=True).asks == "fs.*"
    assert refused("fs.read", {"path": "a"}, tool_policy=rules).hop == "approval"
    patch = {"path": "a", "old": "x", "new": "y"}
    assert refused("fs.patch", patch, tool_policy=rules, attended=True).hop == "policy"


# --- what a project wants of its files --------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "right"),
    [
        ("/home/ada/shop/area.py", "from there it is 'area.py'"),
        ("/home/ada/shop/src/area.py", "from there it is 'src/area.py'"),
        ("/srv/shop/shop/main.py", "from there it is 'shop/main.py'"),
        ("/home/ada/shop/", "give the path from there, such as '.'"),
        ("/etc/passwd", "give the path from there, such as 'passwd'"),
        ("~/notes.txt", "give the path from there, such as 'notes.txt'"),
        ("/", "give the path from there, such as '.'"),
    ],
)
def test_an_absolute_path_is_refused_with_its_own_end(path: str, right: str) -> None:
    """Tracebacks show absolute paths. Told of `src/main.py` as an example, models asked for that file."""
    outcome = refused("fs.read", {"path": path}, project="shop")

    assert (outcome.hop, outcome.reason) == ("paths", f"{path!r} is not relative to the project: {right}")


def test_by_the_wording_of_older_runs_it_is_refused_as_then() -> None:
    assert refused("fs.read", {"path": "/a"}).reason.endswith("give the path from there, such as src/main.py")


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("test_a.py", "test_*.py"),
        ("deep/down/test_a.py", "test_*.py"),
        ("./x//test_a.py", "test_*.py"),
        ("docs/guide/one.md", "docs/*"),
        ("docs//one.md", "docs/*"),
        ("Makefile", "Makefile"),
    ],
)
@pytest.mark.parametrize("name", ["fs.write", "fs.patch"])
def test_a_file_that_is_to_stay_is_not_written(name: str, path: str, pattern: str) -> None:
    rest = {"content": "x"} if name == "fs.write" else {"old": "x", "new": "y"}

    outcome = refused(name, {"path": path, **rest}, keep=("*.lock", pattern))

    assert outcome.hop == "paths"
    assert f"loop.keep has {pattern!r}" in outcome.reason
    admitted("fs.read", {"path": path}, keep=(pattern,))


@pytest.mark.parametrize("path", ["a.py", "my_test_a.py", "docs.md", "src/docs/one.md", "TEST_A.PY"])
def test_other_files_are(path: str) -> None:
    admitted("fs.write", {"path": path, "content": "x"}, keep=("test_*.py", "docs/*"))


@pytest.mark.parametrize(("content", "written"), [("x", "x\n"), ("x\n", "x\n"), ("", ""), ("a\nb", "a\nb\n")])
def test_a_file_ends_in_a_line_break_where_the_project_wants_it_and_the_log_says_so(
    content: str, written: str
) -> None:
    outcome = admitted("fs.write", {"path": "a", "content": content}, final_newline=True)

    assert json.loads(outcome.arguments)["content"] == written
    assert outcome.notes == (() if content == written else ("a line break put at the end of 'content'",))
    assert outcome.changed == (content != written)


def test_nobody_else_adds_anything_to_a_content() -> None:
    patch = {"path": "a", "old": "x", "new": "y"}

    assert json.loads(admitted("fs.patch", patch, final_newline=True).arguments) == patch
    assert json.loads(admitted("fs.write", {"path": "a", "content": "x"}).arguments)["content"] == "x"
