#!/usr/bin/env bash
# The last step of the action: turns its inputs into the flags of `pgassay run`.
set -euo pipefail

pgassay=${INPUT_BINARY:-$HOME/.pgassay/bin/pgassay}
export LD_LIBRARY_PATH="$HOME/.pgassay/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
mkdir -p "$INPUT_REPORTS"

flags=(--github --json-file "$INPUT_REPORTS/report.json" --junit "$INPUT_REPORTS/junit.xml" --sarif "$INPUT_REPORTS/report.sarif" --html "$INPUT_REPORTS/report.html")
if [ -n "${INPUT_UPSTREAM:-}" ]; then
  flags+=(--upstream "$INPUT_UPSTREAM")
else
  flags+=(--postgres "${INPUT_POSTGRES:-any}")
fi
if [ -n "${INPUT_MIN_COVERAGE:-}" ]; then flags+=(--min-coverage "$INPUT_MIN_COVERAGE"); fi
if [ -n "${INPUT_BASELINE:-}" ]; then flags+=(--baseline "$INPUT_BASELINE"); fi
for rule in ${INPUT_FAIL_ON:-}; do flags+=(--fail-on "$rule"); done
for rule in ${INPUT_ALLOW:-}; do flags+=(--allow "$rule"); done

exec "$pgassay" run "${flags[@]}" -- bash -euo pipefail -c "$INPUT_RUN"
