"""The command line: ``millstream``."""
