#!/usr/bin/env bash
# Validates everything that is not Rust: alerts, dashboards, manifests, units, scripts. Needs no network.
# Exits with 1 when anything is wrong, after having said everything that is.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
tools=${PGASSAY_DEPS:-.deps}/validators/bin
failed=0

# check NAME COMMAND...: runs quietly; shows the output when the command fails.
check() {
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    printf 'validate: ok      %s\n' "$name"
  else
    printf 'validate: FAILED  %s\n%s\n' "$name" "$output"
    failed=1
  fi
}

[ -x "$tools/shellcheck" ] || {
  echo "validate: the validators are not there; run deploy/setup.sh test first" >&2
  exit 1
}

mapfile -t scripts < <(git ls-files '*.sh' .ci/run 2>/dev/null)
check "shell scripts" "$tools/shellcheck" --severity=style "${scripts[@]}"
check "alert rules" promtool check rules --lint=all --lint-fatal rules/alerts/pgassay.yml
check "alert tests" promtool test rules rules/alerts/pgassay_test.yml

exit "$failed"
