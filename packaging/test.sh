#!/usr/bin/env bash
# All tests on a fresh machine, browser included.
#   bash packaging/test.sh                      lint, types, layers, the tests; of the long matrices a part (CONTRIBUTING.md)
#   bash packaging/test.sh --all                the same with the matrices whole, and the journeys on two servers; chaos and soak have commands of their own
#   bash packaging/test.sh --bench              no test: measures, and writes docs/performance.md; takes the arguments of tests.bench
#   bash packaging/test.sh tests/core -k ids    arguments go to pytest, which then runs in one process; lint, types and layers are left out
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$root"
# shellcheck source=packaging/setup.sh
source packaging/setup.sh

# The README's commands use curl, the journeys a real browser, the store and the connectors servers of their own.
ensure_test_tools() {
    local missing=()
    command -v curl >/dev/null || missing+=(curl)
    command -v git >/dev/null || missing+=(git)
    command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
    [ -n "$(command -v initdb || find /usr/lib/postgresql -name initdb 2>/dev/null)" ] || missing+=(postgresql)
    command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server)
    command -v sshd >/dev/null || [ -x /usr/sbin/sshd ] || missing+=(openssh-server)
    command -v dovecot >/dev/null || [ -x /usr/sbin/dovecot ] || missing+=(dovecot-imapd)
    command -v slapd >/dev/null || [ -x /usr/sbin/slapd ] || missing+=(slapd)
    command -v apache2 >/dev/null || [ -x /usr/sbin/apache2 ] || missing+=(apache2-bin)
    command -v proftpd >/dev/null || [ -x /usr/sbin/proftpd ] || missing+=(proftpd-core proftpd-mod-crypto)
    command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
    command -v caddy >/dev/null || missing+=(caddy)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v php >/dev/null || missing+=(php-cli)
    /usr/bin/python3 -c 'import swift' 2>/dev/null || missing+=(python3-swift)
    [ ${#missing[@]} = 0 ] || need_packages "the tests need ${missing[*]}" "${missing[@]}"
}

# The official suites of MCP and the linters of the API document want a newer Node.js than some machines have.
ensure_suites() {
    node -e 'const [major, minor] = process.versions.node.split("."); process.exit(major * 1000 + +minor >= 22019 ? 0 : 1)' 2>/dev/null ||
        fetch_node "The tests need Node.js 22.19 or newer"
    .venv/bin/python -m tests.mcp.suites || fail "the MCP suites could not be fetched; is the network reachable?"
    .venv/bin/python -m tests.journeys.company.provider || fail "the identity provider could not be fetched; is the network reachable?"
    .venv/bin/python -m tests.api.openapi.contract_packages || fail "the linters of the API could not be fetched; is the network reachable?"
}

results=()
failed=0
check() { # check NAME COMMAND... : runs it, remembers the verdict, goes on
    local name="$1" started=$SECONDS
    shift
    step "$name"
    if "$@"; then results+=("$name: ok ($((SECONDS - started)) s)"); else
        results+=("$name: FAILED ($((SECONDS - started)) s)")
        failed=1
    fi
}

verdict() { # verdict PID LOG : waits for a command of this shell, shows its output, returns its exit code
    local code=0
    wait "$1" || code=$?
    cat "$2"
    return "$code"
}

if [ "${1:-}" = --bench ]; then
    shift
    alone prepare_everything test
    exec .venv/bin/python -m tests.bench "$@"
fi
ensure_test_tools
alone prepare_everything test
alone ensure_suites
.venv/bin/python -m tests.screenshots.axe || fail "axe-core could not be fetched; is the network reachable?"
.venv/bin/python -m tests.integrations.github_document || fail "the document of a test could not be fetched; is the network reachable?"

whole=no
[ "$*" != --all ] || whole=yes
types=
color=()
[ -n "$bold" ] || { export NO_COLOR=1; color=(--color=no); }
if [ "$*" = "" ] || [ "$*" = --all ]; then
    check "ruff" .venv/bin/ruff check .
    check "layers" .venv/bin/lint-imports
    # It takes a minute of one core, and the tests leave some of both: it runs beside them at low priority, and is reported after them.
    nice -n 19 .venv/bin/mypy >.cache/mypy.log 2>&1 &
    types=$!
    trap 'kill "$types" 2>/dev/null || true' EXIT
    # In two processes, the tests of a file together: most of them wait for something, which leaves half of two cores idle.
    set -- --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@"
fi
check "pytest" .venv/bin/pytest "${color[@]}" "$@"
[ -z "$types" ] || check "mypy, beside pytest" verdict "$types" .cache/mypy.log
trap - EXIT
[ "$whole" = no ] || check "journeys on two servers" .venv/bin/pytest "${color[@]}" --spread tests/journeys

step "Summary"
printf '%s\n' "${results[@]}"
exit "$failed"
