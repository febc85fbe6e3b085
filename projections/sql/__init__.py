"""Runs as tables: the relations, views and recipes that DuckDB answers from."""
