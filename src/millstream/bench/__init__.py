"""Benchmarks: each measures Millstream and plain Spark in one run, on the same files, in processes of their own."""
