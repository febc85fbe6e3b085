"""Runs in other people's formats: ATIF, OpenTelemetry GenAI spans, OpenAI messages."""
