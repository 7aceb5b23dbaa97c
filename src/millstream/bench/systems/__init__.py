"""The systems under test, each in a process of its own behind one small interface."""
