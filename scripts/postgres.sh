#!/bin/sh
# Print the directory of a PostgreSQL server's programs, for the tests; where there is none, install one first:
#   sh scripts/postgres.sh .venv/bin/python
# In this order: what is installed; Debian's package, if we are root; a wheel that carries the server, for the Python
# named. The server itself is started and stopped by the tests.
set -eu

python=${1:-.venv/bin/python}
here=$(cd "$(dirname "$0")/.." && pwd)

say() { printf 'postgres: %s\n' "$*" >&2; }

# A server is of use with initdb and pg_dump beside it.
complete() { [ -x "$1/postgres" ] && [ -x "$1/initdb" ] && [ -x "$1/pg_ctl" ] && [ -x "$1/pg_dump" ]; }

of_path() { command -v postgres >/dev/null 2>&1 && dirname "$(readlink -f "$(command -v postgres)")"; }

of_debian() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1; }

of_wheel() {
    "$python" -c 'import importlib.util as u; print(u.find_spec("pgserver").submodule_search_locations[0])' 2>/dev/null |
        sed 's|$|/pginstall/bin|'
}

found() {
    for place in "$(of_path)" "$(of_debian)" "$(of_wheel)"; do
        if [ -n "$place" ] && complete "$place"; then
            echo "$place"
            return 0
        fi
    done
    return 1
}

# The package would make and start a cluster of its own; the policy keeps it from being started.
from_debian() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    say "installing Debian's postgresql"
    policy=/usr/sbin/policy-rc.d
    mine=no
    if [ ! -e "$policy" ]; then
        mine=yes
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    status=0
    { apt_get install || { apt_get update && apt_get install; }; } >&2 || status=1
    [ "$mine" = no ] || rm -f "$policy"
    return "$status"
}

apt_get() {
    if [ "$1" = update ]; then
        apt-get -q update
    else
        DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install postgresql
    fi
}

from_wheel() {
    say "installing a wheel of the server"
    "$python" -m pip install -qq --disable-pip-version-check --no-deps --only-binary :all: \
        --constraint "$here/constraints.txt" pgserver >&2
}

if found; then
    exit 0
fi
from_debian || from_wheel || true
if ! found; then
    say "no PostgreSQL server found, and none could be installed: apt-get needs root, the wheel x86-64 and Python up to 3.12"
    exit 1
fi
