"""``python -m millstream`` is the command line."""

from millstream.cli.main import run

if __name__ == "__main__":
    run()
