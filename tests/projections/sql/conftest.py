"""Small logs written move by move, as the two loops write them."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from stepfold.events.configuration import CheckSpec, GoalConfig, HarnessConfig, ModelSpec
from stepfold.events.vocabulary import (
    VERSION,
    ActionParsed,
    ActionRejected,
    CheckReturned,
    CheckStarted,
    Command,
    ContextBuilt,
    EffectLost,
    EvidenceRecorded,
    FallbackSelected,
    FinishAccepted,
    FinishRejected,
    GuardTripped,
    LimitReached,
    Message,
    ModelCompleted,
    ModelDelta,
    ModelErred,
    ModelFailed,
    ModelReplied,
    ModelStarted,
    NoProgress,
    Observed,
    RetryScheduled,
    RunCompleted,
    RunFailed,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    Section,
    Steered,
    SteeringReceived,
    ToolArgumentsRejected,
    ToolCall,
    ToolCompleted,
    ToolErred,
    ToolFailed,
    ToolRejected,
    ToolReturned,
    ToolSkipped,
    ToolStarted,
    UnknownToolCalled,
    UserAnswered,
    UserAsked,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
CHECKS = (CheckSpec("unit", "pytest -q"), CheckSpec("a:b", "make it"))
HOSTILE = "quote ' \" back\\slash \u2028 \u0085 \x00 \x1b[31mred ünï 👍🏽 \t\r\n end"


def pair_of(event):
    """What an event is paired by: the call of a model, the key of a tool or a check."""
    key = getattr(event, "key", "")
    if key.startswith("model:"):
        return key.partition(":")[2].rpartition(":")[0]
    if key:
        return key
    return event.call_id if type(event).__name__ in PAIRED_BY_CALL else None


PAIRED_BY_CALL = ("ModelStarted", "ModelCompleted", "ModelFailed", "FallbackSelected")


class Log:
    """One run as it grows: each event gets the next seq; an observed one takes a while to come."""

    def __init__(self, run_id="r"):
        self.run_id, self.events, self.step, self.micros, self.calls = run_id, [], 0, 0, 0

    def add(self, kind, **fields):
        if issubclass(kind, Observed):
            self.micros += 1_234_567 + 1_000 * len(self.events)
        else:
            fields.setdefault("row", "row")
        ts = (START + timedelta(microseconds=self.micros)).isoformat(timespec="microseconds")
        event = kind(VERSION, self.run_id, len(self.events), self.step, ts.replace("+00:00", "Z"), **fields)
        self.events.append(event)
        return event

    # --- goal loop ---

    def goal(self, goal="make it work", model="m-1", checks=CHECKS, **more):
        config = GoalConfig(goal=goal, model=model, checks=checks)
        self.add(RunStarted, config=config, engine="0.1.0", **more)
        return self

    def ask(self, text, errors=(), fallback="", answered=True, **reply):
        """A step up to its reply: `errors` are the attempts that failed before it."""
        self.step += 1
        call_id = f"model-{self.step}"
        self.add(ContextBuilt, sections=(Section("goal", "d", HOSTILE),), tokens=100 * self.step)
        self.add(ModelStarted, call_id=call_id, model="m-1", digest="digest")
        for attempt, error in enumerate(errors):
            self.add(
                ModelErred, key=f"model:{call_id}:{attempt}", error=error, detail=f"{error}!", retryable=True
            )
            self.add(RetryScheduled, call_id=call_id, attempt=attempt + 1, delay=0.2, why="error")
        if fallback:
            self.add(FallbackSelected, call_id=call_id, model=fallback)
        if answered:
            told = {"cached_tokens": 8 * self.step, "first_token": 0.25, "cost": 0.5} if self.step % 2 else {}
            reply = {"input_tokens": 10 * self.step, "output_tokens": 3, **told, **reply}
            self.add(ModelReplied, key=f"model:{call_id}:{len(errors)}", text=text, **reply)
            self.add(ModelCompleted, call_id=call_id)
        return self

    def fail_to_ask(self, error="server"):
        self.ask("", answered=False)
        call_id = f"model-{self.step}"
        self.add(ModelErred, key=f"model:{call_id}:0", error=error, detail="down")
        self.add(ModelFailed, call_id=call_id, error=error)
        return self

    def act(self, name, arguments, **asked):
        """A step whose reply is an action; `arguments` is the text of its object."""
        before = f'\n{{"name": {json.dumps(name)}, "arguments": '
        self.ask(f"{before}{arguments}}} ", **asked)
        self.calls += 1
        self.add(
            ActionParsed,
            call_id=self.call_id,
            name=name,
            start=len(before),
            end=len(before) + len(arguments),
        )
        return self

    @property
    def call_id(self):
        return f"call_{self.calls}"

    def reject(self, text="no json", error="NotJson"):
        self.ask(text)
        self.calls += 1
        self.add(
            ActionRejected,
            call_id=self.call_id,
            error=error,
            detail=f"{error}: {text}",
            repair=Section("r", "d"),
        )
        return self

    def call(self, name, inner, landing="returned", changed=None):
        written = json.dumps({"capability": name, "arguments": inner}, ensure_ascii=False)
        self.act("capability_call", written)
        return self.run_tool(name, landing, changed)

    def run_tool(self, name, landing="returned", changed=None):
        call_id = self.call_id
        if landing == "rejected":
            self.add(ToolRejected, call_id=call_id, name=name, hop="gate", reason="load it first")
            return self
        arguments = {} if changed is None else {"arguments": msgspec.Raw(msgspec.json.encode(changed))}
        key = f"tool:{self.step}.0"
        self.add(ToolStarted, call_id=call_id, name=name, key=key, **arguments)
        match landing:
            case "returned":
                self.add(ToolReturned, key=key, content=HOSTILE)
                self.add(ToolCompleted, call_id=call_id, key=key, output_bytes=77)
            case "error":
                self.add(ToolReturned, key=key, content="no such file", error="not_found")
                self.add(ToolCompleted, call_id=call_id, key=key, error="not_found")
            case "erred":
                self.add(ToolErred, key=key, error="Crash", detail="it broke")
                self.add(ToolFailed, call_id=call_id, key=key, error="Crash")
            case "lost":
                self.add(EffectLost, key=key)
                self.add(ToolFailed, call_id=call_id, key=key, error="Lost")
            case "open":
                pass
        return self

    def check(self, check_id, exit_code):
        key = f"check:{check_id}:{len(self.of('CheckStarted')) + 1}"
        self.add(CheckStarted, check_id=check_id, key=key)
        self.add(CheckReturned, key=key, exit_code=exit_code, output=HOSTILE, digest="d")
        self.add(EvidenceRecorded, check_id=check_id, passed=exit_code == 0, key=key)
        return self

    def guard(self, guard):
        self.add(GuardTripped, guard=guard, to="exhausted" if guard == "steps_spent" else "")
        return self

    def finish(self, status):
        self.add(RunFinished, status=status, to=status)
        return self

    # --- what a plain reading of the events says ---

    def of(self, *kinds):
        return [event for event in self.events if type(event).__name__ in kinds]

    def answers(self, start):
        """The events that belong to this start: up to the next start of the same call."""
        found = []
        for event in self.events[start.seq + 1 :]:
            if type(event) is type(start) and pair_of(event) == pair_of(start):
                break
            if pair_of(event) == pair_of(start):
                found.append(event)
        return found

    def landing(self, answers):
        kinds = ("ModelReplied", "ModelErred", "ToolReturned", "ToolErred", "EffectLost", "CheckReturned")
        landed = [event for event in answers if type(event).__name__ in kinds]
        return landed[-1] if landed else None

    def model_before(self, seq):
        asked = [event for event in self.of("ModelStarted", "FallbackSelected") if event.seq < seq]
        return asked[-1].model if asked else None

    def text_of(self, reply):
        return reply.text or "".join(piece.text for piece in self.of("ModelDelta") if piece.key == reply.key)

    def reply_before(self, seq):
        replies = [event for event in self.of("ModelReplied") if event.seq < seq]
        return self.text_of(replies[-1]) if replies else None

    def written(self, parsed):
        return self.reply_before(parsed.seq)[parsed.start : parsed.end]


def goal_stories():
    """Runs of the strict loop, between them every ending and every way a call goes."""
    good = Log("good").goal()
    good.act("capability_search", '{"query": "fs"}').call("fs.read", {"path": "ä.py", "n": [1, 2.50]})
    good.reject().call("fs.write", {"path": HOSTILE}, "error").call("shell.run", {"command": "x"}, "erred")
    good.call("fs.patch", {"file": "a"}, changed={"path": "a"}).call("web.fetch", {"url": "u"}, "rejected")
    good.act("memory_write", '{"text": "remember"}').run_tool("memory_write")
    good.act("verify", "{}").check("unit", 1).check("a:b", 0)
    good.act("finish", '{"summary": "s"}').add(FinishRejected, call_id=good.call_id, unmet=("unit", "a:b"))
    good.act("verify", "{}").check("unit", 0)
    good.act("finish", '{"summary": "s"}').add(FinishAccepted, call_id=good.call_id, by="finish")
    good.finish("completed")

    capped = Log("capped").goal(goal="other ' goal", checks=CHECKS[:1])
    capped.act("verify", "{}").reject().act("verify", "{}", errors=("server", "rate_limited"), fallback="m-2")
    capped.reject("", "Empty").guard("steps_spent")

    repeats = Log("repeats").goal(checks=())
    repeats.act("capability_search", '{"query": "fs"}').act("verify", "{}").reject().act("verify", "{}")
    repeats.guard("verify_repeats").finish("missing_evidence")

    asks = Log("asks").goal().act("ask_user", '{"question": "which?"}')
    asks.add(UserAsked, call_id=asks.call_id)
    asks.finish("awaiting_user")

    answered = Log("answered").goal().act("ask_user", '{"question": "which?"}')
    answered.add(UserAsked, call_id=answered.call_id)
    answered.finish("awaiting_user").add(UserAnswered, text="the red one")
    answered.add(RunResumed)
    answered.call("fs.read", {"path": "x"}, "lost").call("fs.list", {}, "open")

    failed = Log("failed").goal(parent="good", parent_call="call_1").fail_to_ask().finish("failed")
    cut = Log("cut").goal().ask("", answered=False)
    waiting = Log("waiting").goal().act("verify", "{}")
    waiting.add(CheckStarted, check_id="unit", key="check:unit:1")
    return [good, capped, repeats, asks, answered, failed, cut, waiting]


def tools_stories():
    config = HarnessConfig(models=(ModelSpec(name="m-3"), ModelSpec(name="m-4")))
    asked = (Message("system", "be brief"), Message("user", "weather?"))

    done = Log("t-done")
    done.add(RunStarted, config=config, engine="0.1.0", input=asked)
    done.step, call = 1, ToolCall("c1", "weather", '{"city": "Köln"}')
    done.add(ModelStarted, call_id="model-1", model="m-3", digest="d")
    done.add(ModelDelta, key="model:model-1:0", text="let me ")
    done.add(ModelDelta, key="model:model-1:0", text="look")
    calls = (
        call,
        ToolCall("c2", "nope", "{}"),
        ToolCall("c3", "weather", "{"),
        ToolCall("c4", "weather", "{}"),
    )
    done.add(ModelReplied, key="model:model-1:0", text="", tool_calls=calls, streamed=True, cache="miss")
    done.add(ModelCompleted, call_id="model-1")
    done.add(UnknownToolCalled, call_id="c2", name="nope", recovery="tool_error")
    done.add(ToolArgumentsRejected, call_id="c3", name="weather", reason="no JSON")
    done.add(ToolStarted, call_id="c1", name="weather", key="tool:1.0")
    done.add(ToolReturned, key="tool:1.0", content="rain")
    done.add(ToolCompleted, call_id="c1", key="tool:1.0")
    done.add(LimitReached, limit="tool_calls")
    done.add(ToolSkipped, call_id="c3", why="limit")
    done.add(ToolSkipped, call_id="c4", why="limit")
    done.step = 2
    done.add(SteeringReceived, commands=(Command("inject", "hurry"), Command("resume")))
    done.add(Steered, command="inject", accepted=True)
    done.add(NoProgress, verdict="nudge", message="again?")
    done.add(ModelStarted, call_id="model-2", model="m-3", digest="d")
    done.add(
        ModelReplied,
        key="model:model-2:0",
        text="rain",
        input_tokens=5,
        output_tokens=1,
        cache="hit",
        estimated=True,
    )
    done.add(ModelCompleted, call_id="model-2")
    done.add(RunCompleted)

    cancelled, broken, paused, resumed = (
        Log("t-cancelled"),
        Log("t-broken"),
        Log("t-paused"),
        Log("t-resumed"),
    )
    for log in (cancelled, broken, paused, resumed):
        log.add(RunStarted, config=config, engine="0.1.0", input=asked)
    cancelled.add(RunFailed, error="Cancelled")
    broken.add(RunFailed, error="Timeout")
    paused.add(RunPaused, checkpoint=0)
    resumed.add(RunPaused, checkpoint=0)
    resumed.add(Steered, command="resume", accepted=True)
    return [done, cancelled, broken, paused, resumed]


def encoded(log):
    return b"".join(msgspec.json.encode(event) + b"\n" for event in log.events)


@pytest.fixture
def write(tmp_path):
    """Write logs as a store; give back its folder."""

    def write(*logs):
        runs = tmp_path / "store" / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        for log in logs:
            (runs / f"{log.run_id}.jsonl").write_bytes(encoded(log))
        return tmp_path / "store"

    return write


@pytest.fixture(scope="session")
def stories():
    return [*goal_stories(), *tools_stories()]


@pytest.fixture
def Story():
    return Log


@pytest.fixture
def viewed():
    """All rows of a view in the order of the logs, JSON decoded."""
    order = {"runs": "run_id", "steps": "run_id, step", "messages": "run_id, seq, place"}

    def viewed(relations, view):
        table = relations.query(f"SELECT * FROM {view} ORDER BY {order.get(view, 'run_id, seq')}")
        return [
            {
                name: json.loads(value) if kind == "JSON" and value is not None else value
                for name, value, kind in zip(table.names, row, table.types, strict=True)
            }
            for row in table.rows
        ]

    return viewed


MOVES = {
    "call": lambda log: log.call("fs.read", {"path": "é👍", "n": [1, 2.5]}),
    "changed": lambda log: log.call("fs.read", {"file": "x"}, changed={"path": "x"}),
    "error": lambda log: log.call("fs.read", {}, "error"),
    "erred": lambda log: log.call("shell.run", {}, "erred"),
    "lost": lambda log: log.call("shell.run", {}, "lost"),
    "refused": lambda log: log.call("web.fetch", {}, "rejected"),
    "reject": lambda log: log.reject("📎 no", "NotJson"),
    "search": lambda log: log.act("capability_search", '{"query": "\\ud83d\\ude00 \'"}'),
    "verify": lambda log: log.act("verify", "{}").check("unit", 1).check("a:b", 0).check("unit", 0),
    "retry": lambda log: log.act("verify", "{}", errors=("server",), fallback="m-9"),
    "guard": lambda log: log.guard("search_repeats"),
    "fail": lambda log: log.fail_to_ask("timeout"),
}


@pytest.fixture
def grown():
    """A run that makes these moves, one after the other."""

    def grown(moves):
        log = Log("cut").goal()
        for move in moves:
            MOVES[move](log)
        return log

    return grown
