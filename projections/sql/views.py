"""The stable views over the runs of a store: their names, their columns and what each of them means."""

from stepfold.projections.sql.calls import CHECKS, MODEL_CALLS, TOOL_CALLS
from stepfold.projections.sql.shared import View

RUNS = View(
    "runs",
    "One row a run, however it ended.",
    {
        "run_id": "The run's id, the name of its file.",
        "loop": "goal (the strict loop), tools (the tool-calling loop) or imported (another program's).",
        "parent": "The run that started this one; NULL for a root.",
        "goal": "The goal; for the tools loop the first user message.",
        "model": "The model the run was configured with, else the first that was asked.",
        "engine": "The version of the engine that made the run.",
        "started": "Time of the first event, UTC.",
        "ended": "Time of the last event, UTC; of an unfinished run too.",
        "finish": "completed, missing_evidence, awaiting_user, cancelled or failed; NULL while unfinished.",
        "status": "Like finish, and step_cap, paused, unfinished.",
        "steps": "The last step.",
        "actions": "Replies that were an action; in the other loops the tools called.",
        "rejected": "Replies that were no action; in the tools loop calls refused for name or arguments.",
        "input_tokens": "Tokens of all prompts; replies from the cache are not counted.",
        "output_tokens": "Tokens of all replies; those from the cache are not counted.",
        "events": "Lines of the log.",
        "cost": "What all billed replies cost together, by the table of prices or by their models.",
        "source": "The run that this one was forked from; NULL for others.",
        "source_seq": "The first event that a fork may not share with its source; NULL for others.",
    },
    """
    WITH opened AS (
        SELECT run_id, config, nullif(parent, '') AS parent, engine, input, nullif(source, '') AS source,
            if(nullif(source, '') IS NULL, NULL, source_seq) AS source_seq
        FROM recorded.log WHERE kind = 'RunStarted'
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY seq) = 1
    ), asked_for AS (
        SELECT run_id, arg_min(turn.value->>'content', turn.key::BIGINT) AS first_words
        FROM opened, json_each(input) AS turn WHERE (turn.value->>'role') = 'user' GROUP BY run_id
    ), totals AS (
        SELECT run_id, min(ts) AS started, arg_max(ts, seq) AS ended, max(step) AS steps, count(*) AS events,
            count(*) FILTER (kind = 'ActionParsed') AS parsed,
            count(*) FILTER (kind IN ('ToolStarted', 'ToolCalled')) AS tools_started,
            count(*) FILTER (kind IN ('ActionRejected', 'ToolArgumentsRejected', 'UnknownToolCalled',
                'RejectionRecorded')) AS rejected,
            coalesce(sum(input_tokens) FILTER (kind = 'ModelReplied' AND coalesce(cache, '') <> 'hit'), 0)
                AS input_tokens,
            coalesce(sum(output_tokens) FILTER (kind = 'ModelReplied' AND coalesce(cache, '') <> 'hit'), 0)
                AS output_tokens,
            coalesce(sum(cost) FILTER (kind = 'ModelReplied' AND coalesce(cache, '') <> 'hit'), 0) AS cost,
            arg_min(model, seq) FILTER (kind = 'ModelStarted') AS asked
        FROM recorded.log GROUP BY run_id
    ), last_turn AS (
        SELECT run_id, CASE kind
            WHEN 'RunFinished' THEN status->>'$'
            WHEN 'GuardTripped' THEN 'step_cap'
            WHEN 'RunCompleted' THEN 'completed'
            WHEN 'RunFailed' THEN if(lower(error) = 'cancelled', 'cancelled', 'failed')
            WHEN 'RunPaused' THEN 'paused'
            WHEN 'TraceEnded' THEN nullif(status->>'$', '')
            ELSE 'unfinished' END AS status
        FROM recorded.log
        WHERE kind IN ('RunFinished', 'RunResumed', 'RunCompleted', 'RunFailed', 'RunPaused',
                'TraceEnded')
            OR (kind = 'GuardTripped' AND guard = 'steps_spent')
            OR (kind = 'Steered' AND command = 'resume' AND accepted)
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY seq DESC) = 1
    )
    SELECT totals.run_id, config->>'loop', parent,
        coalesce(config->>'goal', first_words),
        coalesce(nullif(config->>'model', ''), asked, config->>'$.models[0].name'), engine, started, ended,
        CASE WHEN status = 'step_cap' THEN 'missing_evidence'
            WHEN status NOT IN ('paused', 'unfinished') THEN status END,
        coalesce(status, 'unfinished'), steps, if((config->>'loop') = 'goal', parsed, tools_started),
        rejected, input_tokens, output_tokens, events, cost, source, source_seq
    FROM totals LEFT JOIN opened USING (run_id) LEFT JOIN asked_for USING (run_id)
    LEFT JOIN last_turn USING (run_id)
    """,
)

EVENTS = View(
    "events",
    "One row an event, as recorded.",
    {
        "run_id": "The run.",
        "seq": "The event's place in its run, from 0.",
        "step": "The step it belongs to; 0 before the first.",
        "ts": "When, UTC; a decided event has the time of the last observed one.",
        "kind": "The event's kind.",
        "data": "The fields of its kind, as JSON.",
    },
    """
    SELECT run_id, seq, step, ts, kind,
        json_merge_patch(line, '{"v":null,"run_id":null,"seq":null,"step":null,"ts":null,"kind":null}')
    FROM recorded.log
    """,
)

STEPS = View(
    "steps",
    "One row a step: what was asked, and what came of it.",
    {
        "run_id": "The run.",
        "step": "The step, from 1.",
        "started": "Time of its first event, UTC.",
        "ended": "Time of its last event, UTC.",
        "seconds": "From the first event to the last.",
        "model": "The model that was asked last.",
        "outcome": "action, rejected, replied (tools loop, imported), failed (no reply) or unfinished.",
        "action": "The action's name; NULL for a reply that was none.",
        "call_id": "The call of the action or of the rejected reply.",
        "arguments": "The action's arguments as the model wrote them.",
        "reply": "The last reply of the step, as it came.",
        "error": "Why the reply was rejected, or the call failed.",
        "context_tokens": "Tokens of the request as the engine counted them.",
        "input_tokens": "Tokens of the step's prompts, by the server or estimated.",
        "output_tokens": "Tokens of the step's replies, by the server or estimated.",
        "tools": "Tools started in the step.",
        "guard": "The last guard that tripped in the step.",
        "events": "Lines of the log.",
    },
    """
    WITH totals AS (
        SELECT run_id, step, min(ts) AS started, max(ts) AS ended, count(*) AS events,
            arg_max(model, seq) FILTER (kind IN ('ModelStarted', 'FallbackSelected')
                OR (kind = 'ModelReplied' AND key IS NULL)) AS model,
            arg_max(call_id, seq) FILTER (kind IN ('ActionParsed', 'ActionRejected')) AS call_id,
            arg_max(error, seq) FILTER (kind IN ('ActionRejected', 'ModelFailed', 'RejectionRecorded'))
                AS error,
            bool_or(kind = 'ActionParsed') AS parsed,
            bool_or(kind IN ('ActionRejected', 'RejectionRecorded')) AS rejected,
            bool_or(kind = 'ModelFailed') AS failed,
            bool_or(kind = 'ModelCompleted' OR (kind = 'ModelReplied' AND key IS NULL)) AS completed,
            arg_max(tokens, seq) FILTER (kind = 'ContextBuilt') AS context_tokens,
            coalesce(sum(input_tokens), 0) AS input_tokens, coalesce(sum(output_tokens), 0) AS output_tokens,
            count(*) FILTER (kind IN ('ToolStarted', 'ToolCalled')) AS tools,
            arg_max(guard, seq) FILTER (kind = 'GuardTripped') AS guard
        FROM recorded.log WHERE step > 0 GROUP BY run_id, step
    ), said AS (
        SELECT run_id, step, arg_max(text, seq) AS text FROM recorded.replies GROUP BY run_id, step
    )
    SELECT totals.run_id, totals.step, started, ended, date_diff('microseconds', started, ended) / 1e6, model,
        CASE WHEN parsed THEN 'action' WHEN rejected THEN 'rejected' WHEN failed THEN 'failed'
            WHEN completed THEN 'replied' ELSE 'unfinished' END,
        actions.name, totals.call_id, actions.written, said.text, error, context_tokens, input_tokens,
        output_tokens, tools, guard, events
    FROM totals
    LEFT JOIN recorded.actions AS actions USING (run_id, call_id)
    LEFT JOIN said ON said.run_id = totals.run_id AND said.step = totals.step
    """,
)

REJECTIONS = View(
    "rejections",
    "One row each time the engine said no to the model.",
    {
        "run_id": "The run.",
        "seq": "The event's place in the run.",
        "step": "The step.",
        "ts": "When, UTC.",
        "model": "The model that was told no.",
        "subject": "What was rejected: reply, call, tool, arguments or finish.",
        "call_id": "The call.",
        "name": "The tool the model named, if it got so far.",
        "error": "The error's name; for a call the hop, for a finish unmet.",
        "detail": "What was said of it.",
        "reply": "The reply it answers.",
    },
    """
    SELECT said_no.run_id, said_no.seq, said_no.step, said_no.ts, asked.model,
        CASE said_no.kind WHEN 'ActionRejected' THEN 'reply' WHEN 'ToolRejected' THEN 'call'
            WHEN 'UnknownToolCalled' THEN 'tool' WHEN 'ToolArgumentsRejected' THEN 'arguments'
            WHEN 'RejectionRecorded' THEN subject ELSE 'finish' END,
        said_no.call_id, said_no.name,
        CASE said_no.kind WHEN 'ActionRejected' THEN said_no.error WHEN 'RejectionRecorded' THEN said_no.error
            WHEN 'ToolRejected' THEN said_no.hop WHEN 'UnknownToolCalled' THEN 'unknown_tool'
            WHEN 'ToolArgumentsRejected' THEN 'arguments' ELSE 'unmet' END,
        coalesce(said_no.detail, said_no.reason, said_no.recovery,
            array_to_string(said_no.unmet->>'$[*]', ', ')),
        replies.text
    FROM recorded.log AS said_no
    ASOF LEFT JOIN recorded.asked AS asked ON said_no.run_id = asked.run_id AND said_no.seq > asked.seq
    ASOF LEFT JOIN recorded.replies AS replies
        ON said_no.run_id = replies.run_id AND said_no.seq > replies.seq
    WHERE said_no.kind IN
        ('ActionRejected', 'ToolRejected', 'UnknownToolCalled', 'ToolArgumentsRejected', 'FinishRejected',
            'RejectionRecorded')
    """,
)

GUARDS = View(
    "guards",
    "One row each time a guard or a limit took over.",
    {
        "run_id": "The run.",
        "seq": "The event's place in the run.",
        "step": "The step.",
        "ts": "When, UTC.",
        "guard": "The guard's name, the limit's name, or no_progress.",
        "verdict": "guard, limit, nudge or stop.",
        "state": "The state the run went to; NULL when it stayed.",
    },
    """
    SELECT run_id, seq, step, ts,
        CASE kind WHEN 'GuardTripped' THEN guard WHEN 'LimitReached' THEN limit_name ELSE 'no_progress' END,
        CASE kind WHEN 'GuardTripped' THEN 'guard' WHEN 'LimitReached' THEN 'limit' ELSE verdict END,
        nullif(state, '')
    FROM recorded.log WHERE kind IN ('GuardTripped', 'LimitReached', 'NoProgress')
    """,
)

MESSAGES = View(
    "messages",
    "One row for each thing said by the user, the model or a tool, in the words they used.",
    {
        "run_id": "The run.",
        "seq": "Place in the run of the event that brought it.",
        "place": "Place among the messages of that event, from 0.",
        "step": "The step.",
        "ts": "When, UTC.",
        "role": "system, user, assistant or tool.",
        "call_id": "The call it asks or answers; NULL for plain turns.",
        "content": "The text.",
        "tool_calls": "The structured calls of an assistant's message, as JSON.",
    },
    """
    SELECT run_id, seq, place, step, ts, "role", call_id, content, tool_calls FROM (
        SELECT run_id, seq, 0 AS place, step, ts, 'user' AS "role", NULL AS call_id,
            config->>'goal' AS content, NULL::JSON AS tool_calls
        FROM recorded.log WHERE kind = 'RunStarted' AND (config->>'goal') IS NOT NULL
        UNION ALL
        SELECT run_id, seq, turn.key::BIGINT + ((config->>'goal') IS NOT NULL)::INTEGER, step, ts,
            turn.value->>'role', turn.value->>'tool_call_id', coalesce(turn.value->>'content', ''),
            turn.value->'tool_calls'
        FROM recorded.log, json_each(input) AS turn WHERE kind = 'RunStarted'
        UNION ALL
        SELECT run_id, seq, 0, step, ts, 'assistant', call_id, text, tool_calls FROM recorded.replies
        UNION ALL
        SELECT run_id, seq, 0, step, ts, 'tool', call_id, content, NULL
        FROM recorded.answers WHERE kind = 'ToolReturned'
        UNION ALL
        SELECT run_id, seq, 0, step, ts, 'tool', call_id, content, NULL
        FROM recorded.log WHERE kind = 'ToolReturned' AND key IS NULL
        UNION ALL
        SELECT run_id, seq, 0, step, ts, 'user', NULL, text, NULL
        FROM recorded.log WHERE kind = 'UserAnswered'
        UNION ALL
        SELECT run_id, seq, 0, step, ts, "role", NULL, text, NULL
        FROM recorded.log WHERE kind = 'MessageRecorded'
        UNION ALL
        SELECT run_id, seq, command.key::BIGINT, step, ts, 'user', NULL, command.value->>'text', NULL
        FROM recorded.log, json_each(commands) AS command
        WHERE kind = 'SteeringReceived' AND (command.value->>'name') IN ('inject', 'redirect')
    )
    """,
)

USAGE = View(
    "usage",
    "One row a reply, with its tokens.",
    {
        "run_id": "The run.",
        "seq": "Place of the reply in the run.",
        "step": "The step.",
        "ts": "When, UTC.",
        "call_id": "The model call.",
        "model": "The model that was asked.",
        "input_tokens": "Tokens of the prompt.",
        "output_tokens": "Tokens of the reply.",
        "estimated": "Whether the counts are the engine's own, for the server gave none.",
        "billed": "False for a reply from the response cache.",
        "cached_tokens": "Tokens of the prompt that the server had in its cache; NULL when it doesn't say.",
        "cost": "What the reply cost, by the table of prices or by its model; 0 without either.",
    },
    """
    SELECT replies.run_id, replies.seq, replies.step, replies.ts, replies.call_id, asked.model,
        replies.input_tokens, replies.output_tokens, replies.estimated, replies.cache <> 'hit',
        replies.cached_tokens, replies.cost
    FROM recorded.replies AS replies
    ASOF LEFT JOIN recorded.asked AS asked ON replies.run_id = asked.run_id AND replies.seq > asked.seq
    """,
)

VIEWS = (RUNS, EVENTS, STEPS, MODEL_CALLS, TOOL_CALLS, REJECTIONS, GUARDS, CHECKS, MESSAGES, USAGE)
