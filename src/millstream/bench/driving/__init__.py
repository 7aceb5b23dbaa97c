"""The benchmark driver: it owns generators, queues and every measurement, and sees a system from outside only."""
