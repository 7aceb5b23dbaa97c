"""The engine: streams, queries and answers for Python programs."""
