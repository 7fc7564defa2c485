#!/usr/bin/env bash
# Validates everything that is not Rust: alerts, dashboards, manifests, units, scripts. Needs no network.
# Exits with 1 when anything is wrong, after having said everything that is.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
deps=${PGASSAY_DEPS:-.deps}
tools=$deps/validators/bin
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

# systemd-analyze exits with 0 on unknown keys: anything that it says is a failure. The binary need not be installed.
unit() {
  local dir said
  dir=$(mktemp -d)
  sed 's#^ExecStart=/usr/bin/pgassay#ExecStart=/bin/true#' deploy/systemd/pgassay.service >"$dir/pgassay.service"
  said=$(systemd-analyze verify --man=no "$dir/pgassay.service" 2>&1)
  if [ -n "$said" ]; then
    echo "$said"
    rm -rf "$dir"
    return 1
  fi
  # Exposure is counted in tenths: 2.0 is «OK», a service without hardening has 9.6.
  systemd-analyze security --offline=yes --threshold=20 "$dir/pgassay.service" >"$dir/exposure" 2>&1 || said=$(cat "$dir/exposure")
  rm -rf "$dir"
  [ -z "$said" ] || { echo "$said" && return 1; }
}

# What kustomize makes of the base where kubectl is there, else the files as they are; custom resources have no schema here.
manifests() {
  local dir
  dir=$(mktemp -d)
  if command -v kubectl >/dev/null 2>&1; then
    kubectl kustomize deploy/kubernetes/base >"$dir/all.yaml" || return 1
  else
    for file in deploy/kubernetes/base/deployment.yaml deploy/kubernetes/base/podmonitor.yaml; do
      cat "$file"
      echo ---
    done >"$dir/all.yaml"
  fi
  awk -v dir="$dir" '/^---$/ { n++; next } { print > (dir "/part" n + 0 ".yaml") }' "$dir/all.yaml"
  grep -L 'monitoring.coreos.com' "$dir"/part*.yaml | xargs "$tools/kubernetes-validate" --strict
  local result=$?
  rm -rf "$dir"
  return "$result"
}

# What the chart becomes, with little and with much of it in use, and that it refuses values that make no sense.
chart() {
  local dir result
  dir=$(mktemp -d)
  "$deps/helm/bin/python" deploy/helm/check.py "$dir" &&
    "$tools/kubernetes-validate" --strict "$dir"/*.yaml &&
    promtool check rules "$dir"/*-rules.yml
  result=$?
  rm -rf "$dir"
  return "$result"
}

compose() {
  if command -v docker-compose >/dev/null 2>&1; then
    docker-compose -f deploy/compose/compose.yaml config
  else
    docker compose -f deploy/compose/compose.yaml config
  fi
}

schema() { "$tools/check-jsonschema" "$@"; }

mapfile -t scripts < <(find deploy .ci -type f \( -name '*.sh' -o -path .ci/run \) | sort)
check "shell scripts" "$tools/shellcheck" --severity=warning "${scripts[@]}"
check "alert rules" promtool check rules --lint=all --lint-fatal rules/alerts/pgassay.yml
check "alert tests" promtool test rules rules/alerts/pgassay_test.yml
check "scrape configuration" promtool check config --syntax-only deploy/compose/prometheus.yml
check "alert routes" amtool check-config deploy/compose/alertmanager.yml
check "Dockerfile" "$tools/hadolint" deploy/docker/Dockerfile
check "compose file" compose
check "compose schema" schema --builtin-schema vendor.compose-spec deploy/compose/compose.yaml
check "Kubernetes manifests" manifests
check "Helm values schema" schema --check-metaschema deploy/helm/pgassay/values.schema.json
check "Helm values" schema --schemafile deploy/helm/pgassay/values.schema.json deploy/helm/pgassay/values.yaml
if [ -x "$deps/helm/bin/python" ]; then
  check "Helm chart" chart
else
  echo "validate: skipped Helm chart (setup.sh found no Helm library for this machine)"
fi
check "systemd unit" unit
check "GitHub action" schema --builtin-schema vendor.github-actions deploy/github-action/action.yml
check "GitHub workflow" schema --builtin-schema vendor.github-workflows deploy/github-action/example/.github/workflows/test.yml
check "GitHub security" "$tools/zizmor" --offline --no-progress --min-severity medium deploy/github-action
check "GitLab templates" schema --builtin-schema vendor.gitlab-ci deploy/gitlab/pgassay.gitlab-ci.yml deploy/gitlab/example.gitlab-ci.yml

exit "$failed"
