"""What the views share: the shape of a view, and the queries that pair a call with what came of it."""

from msgspec import Struct


class View(Struct, frozen=True):
    """A view: its name, what a row is, what each column is (in order), and the query behind it."""

    name: str
    comment: str
    columns: dict[str, str]
    query: str


CALL_ID = "regexp_extract(key, '^[^:]*:(.*):[^:]*$', 1)"
"""The call in the key of a model's landing: `model:call_id:n`."""

RELATIONS = (
    # Each call's start, and each event that belongs to a call with the seq of the start it follows: tools and
    # checks are paired by the key, models by the call. A resumed run starts a key again, so an event goes to
    # the latest start before it.
    (
        "starts",
        """
        SELECT run_id, seq AS opened, step, ts, regexp_extract(kind, '^(Model|Tool|Check)', 1) AS family,
            coalesce(check_id, call_id) AS call_id, coalesce(answer_key, nullif(key, ''), call_id) AS pair
        FROM recorded.log WHERE kind IN ('ModelStarted', 'ToolStarted', 'CheckStarted', 'ToolCalled')
        """,
    ),
    (
        "answers",
        f"""
        WITH events AS (
            SELECT *, CASE WHEN kind IN ('ModelReplied', 'ModelErred') THEN {CALL_ID}
                    ELSE coalesce(nullif(key, ''), call_id) END AS pair,
                CASE WHEN kind = 'EffectLost'
                    THEN upper(key[1]) || split_part(key[2:], ':', 1)
                    ELSE regexp_extract(kind, '^(Model|Tool|Check)', 1) END AS family
            FROM recorded.log
            WHERE kind IN ('ModelReplied', 'ModelErred', 'ModelCompleted', 'ModelFailed', 'ToolReturned',
                'ToolErred', 'ToolCompleted', 'ToolFailed', 'CheckReturned', 'EffectLost')
            UNION ALL
            SELECT *, coalesce(nullif(key, ''), call_id) AS pair,
                CASE kind WHEN 'EvidenceRecorded' THEN 'Check' ELSE 'Model' END AS family
            FROM recorded.log WHERE kind IN ('EvidenceRecorded', 'FallbackSelected')
        )
        SELECT events.* EXCLUDE (call_id, pair), starts.opened, starts.call_id
        FROM events ASOF JOIN recorded.starts AS starts
            ON events.run_id = starts.run_id AND events.family = starts.family
            AND events.pair = starts.pair AND events.seq > starts.opened
        """,
    ),
    (
        "landings",
        """
        SELECT *, count(*) OVER (PARTITION BY run_id, opened) AS attempts
        FROM recorded.answers
        WHERE kind IN
            ('ModelReplied', 'ModelErred', 'ToolReturned', 'ToolErred', 'CheckReturned', 'EffectLost')
        QUALIFY row_number() OVER (PARTITION BY run_id, opened ORDER BY seq DESC) = 1
        """,
    ),
    (
        "closings",
        """
        SELECT * FROM recorded.answers
        WHERE kind IN ('ModelCompleted', 'ModelFailed', 'ToolCompleted', 'ToolFailed', 'EvidenceRecorded')
        QUALIFY row_number() OVER (PARTITION BY run_id, opened ORDER BY seq DESC) = 1
        """,
    ),
    # A reply's text; where its pieces were recorded and the text was not, the pieces.
    (
        "replies",
        f"""
        WITH pieces AS (
            SELECT run_id, key AS of_reply, string_agg(text, '' ORDER BY seq) AS streamed_text
            FROM recorded.log WHERE kind = 'ModelDelta' GROUP BY ALL
        )
        SELECT log.run_id, log.seq, log.step, log.ts, nullif({CALL_ID}, '') AS call_id, log.tool_calls,
            coalesce(nullif(log.text, ''), pieces.streamed_text, '') AS text, log.model AS served_by,
            coalesce(log.input_tokens, 0) AS input_tokens, coalesce(log.output_tokens, 0) AS output_tokens,
            coalesce(log.estimated, false) AS estimated, coalesce(log.cache, '') AS cache,
            coalesce(log.reasoning, '') AS reasoning, coalesce(log.finish_reason, '') AS finish_reason,
            log.cached_tokens, nullif(log.first_token, 0) AS first_token, coalesce(log.cost, 0) AS cost,
            coalesce(log.key, '') = '' AS imported
        FROM recorded.log AS log LEFT JOIN pieces ON log.run_id = pieces.run_id AND log.key = pieces.of_reply
        WHERE log.kind = 'ModelReplied'
        """,
    ),
    # Who was asked, by the place in the log: a fallback takes over from where it was selected.
    (
        "asked",
        """
        SELECT run_id, seq, step, model FROM recorded.log WHERE kind IN ('ModelStarted', 'FallbackSelected')
        UNION ALL
        SELECT run_id, seq - 1, step, served_by FROM recorded.replies WHERE imported
        """,
    ),
    # Each action with its arguments as the model wrote them: the span counts characters from 0.
    (
        "actions",
        """
        SELECT parsed.run_id, parsed.seq, parsed.step, parsed.call_id, parsed.name,
            substring(replies.text, parsed.span_start + 1, parsed.span_end - parsed.span_start) AS written
        FROM recorded.log AS parsed ASOF LEFT JOIN recorded.replies AS replies
            ON parsed.run_id = replies.run_id AND parsed.seq > replies.seq
        WHERE parsed.kind = 'ActionParsed'
        """,
    ),
    # The calls that a tool-calling model wrote, by the ids it gave them.
    (
        "written_calls",
        """
        SELECT run_id, seq, call.value->>'id' AS call_id, call.value->>'arguments' AS written
        FROM recorded.replies, json_each(tool_calls) AS call
        """,
    ),
)
"""What the views share. They live in the schema `recorded`, and nobody should rely on them."""


def quoted(text: str) -> str:
    """Text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
