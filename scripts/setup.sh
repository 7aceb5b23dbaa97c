#!/bin/sh
# Build or update the virtual environment: sh scripts/setup.sh .venv
# Versions come from constraints.txt, packages from wherever pip is configured to find them.
set -eu

venv=${1:-.venv}
python=${PYTHON:-python3}

say() { printf 'setup: %s\n' "$*"; }

newest_python() {
    for name in "$python" python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    say "Python 3.11 or later is needed; name it with: make setup PYTHON=/path/to/python3" >&2
    exit 1
}

# Spark 4 runs on Java 17 and later; the version is the first number of `java -version`.
has_java() {
    java=java
    [ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
    command -v "$java" >/dev/null 2>&1 || return 1
    major=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

install() { "$venv/bin/python" -m pip install -qq --disable-pip-version-check --constraint constraints.txt "$@"; }

if [ ! -x "$venv/bin/python" ]; then
    chosen=$(newest_python)
    say "creating $venv with $("$chosen" --version)"
    "$chosen" -m venv "$venv"
fi

say "installing Millstream and its dependencies (Spark is 400 MB; a minute or two the first time)"
install --editable ".[dev,postgres,bench]"

say "compiling loops over rows (some seconds, once)"
"$venv/bin/python" -c 'import millstream.kernels.loops'

if has_java; then
    say "using the Java of this machine"
else
    say "no Java 17 or later found; installing one as a wheel into $venv"
    install --editable ".[java]"
fi

if server=$(sh scripts/postgres.sh "$venv/bin/python"); then
    say "using the PostgreSQL server in $server for the tests"
else
    say "tests that need PostgreSQL will fail; set MILLSTREAM_WITHOUT_POSTGRES=1 to leave them out"
fi

say "done; the command is $venv/bin/millstream"
