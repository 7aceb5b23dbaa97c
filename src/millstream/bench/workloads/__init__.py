"""What is run: streams, queries, and how both change over a run."""
