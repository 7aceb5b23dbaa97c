"""The running engine over HTTP: the application, the thread that serves it, where to find it, and its client."""
