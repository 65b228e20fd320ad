#!/usr/bin/env bash
# From a checkout to a running appliance; every further start takes seconds.
#   bash packaging/run.sh [options of `gos serve`]
#   bash packaging/run.sh --prepare        environment and all runtimes, no start; for images and services
#   bash packaging/run.sh --environment    the environment alone
# Environment: GOS_DATA (./data), GOS_HOST (127.0.0.1), GOS_PORT (8080), PYTHON (the Python to build .venv with)
set -euo pipefail
caller="$PWD"
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd "$root"
# shellcheck source=packaging/setup.sh
source packaging/setup.sh

data="${GOS_DATA:-$root/data}"
case "$data" in /*) ;; *) data="$caller/$data" ;; esac
export GOS_DATA="$data" GOS_HOST="${GOS_HOST:-127.0.0.1}" GOS_PORT="${GOS_PORT:-8080}"

if [ "${1-}" = --environment ]; then
    alone prepare_environment run
    exit
fi
if [ "${1-}" = --prepare ]; then
    alone prepare_everything run
    exit
fi
alone prepare_start
report_data
step "Serving on $GOS_HOST, port $GOS_PORT (stop with Ctrl-C)"
compile_rest
exec .venv/bin/gos serve "$@"
