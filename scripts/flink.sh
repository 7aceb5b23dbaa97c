#!/bin/sh
# Build an environment with Flink for the benchmark, apart from Millstream's: it needs an older pyarrow.
#   sh scripts/flink.sh [.flink]
# The place is the argument, else $MILLSTREAM_FLINK, else .flink. Versions come from constraints-flink.txt, packages from
# wherever pip is configured to find them. Java 17 must be there.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
place=${1:-${MILLSTREAM_FLINK:-$here/.flink}}
python=${PYTHON:-python3}

say() { printf 'flink: %s\n' "$*"; }

# Flink's packages need a Python that its wheels are made for.
chosen_python() {
    for name in "$python" python3.12 python3.11 python3.10; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    say "Python 3.10, 3.11 or 3.12 is needed; name it with: make flink PYTHON=/path/to/python3" >&2
    exit 1
}

install() { "$place/bin/python" -m pip install -qq --disable-pip-version-check --constraint "$here/constraints-flink.txt" "$@"; }

if [ ! -x "$place/bin/python" ]; then
    chosen=$(chosen_python)
    say "creating $place with $("$chosen" --version)"
    "$chosen" -m venv "$place"
fi

say "installing Flink (300 MB; a minute or two the first time)"
install apache-flink
say "done; $("$place/bin/python" -c 'from importlib.metadata import version; print("apache-flink", version("apache-flink"))')"
