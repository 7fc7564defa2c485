"""Lints the chart and renders it with little and with much of it in use, with Helm's own library (helm-python-sdk).

In: a folder for the manifests. Out: a file per manifest in it, and PrometheusRules as rule files for promtool.
Ends with 1 when the chart is wrong, or takes values that make no sense.
"""

import os
import pathlib
import sys

import helm_python as helm
import yaml

CHART = pathlib.Path(__file__).parent / "pgassay"
OUT = pathlib.Path(sys.argv[1])

LITTLE = {"upstream": "db:5432"}
MUCH = {
    "upstream": "postgresql://db.example.org:5432/?sslmode=verify-full",
    "admin": {"tokenSecret": "token"},
    "journal": {"size": "20Gi", "storageClass": "fast"},
    "config": {"audit": {"writers": "exclusive", "claim": "serializable"}, "journal": {"bytes_max": 10_000_000_000}},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "runbooks": "https://wiki.example.org/pgassay/"},
    "dashboards": {"enabled": True},
    "imagePullSecrets": [{"name": "registry"}],
    "podLabels": {"team": "data"},
    "podAnnotations": {"note": "yes"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {}},
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
}
WRONG = [{}, {"upstraem": "db:5432"}, {**LITTLE, "replicas": "two"}, {**LITTLE, "service": {"port": 0}}]


def lint(values):
    report = helm.lint(str(CHART), values, strict=True)
    # 1 is a recommendation (an icon), 2 a warning, 3 an error.
    return [finding for finding in report["messages"] if finding["severity"] > 1] + report["errors"]


def render(chart, values):
    chart.validate_schema(values)
    rendered = chart.render(values, name="staging", namespace="databases")
    manifests = [document for name, text in rendered.items() if name.endswith(".yaml") for document in yaml.safe_load_all(text)]
    return [manifest for manifest in manifests if manifest]


def kinds(manifests):
    return sorted(manifest["kind"] for manifest in manifests)


def check():
    with helm.Chart.load(str(CHART)) as chart:
        for name, values in {"little": LITTLE, "much": MUCH}.items():
            findings = lint(values)
            assert not findings, findings
            manifests = render(chart, values)
            for number, manifest in enumerate(manifests):
                kind = manifest["kind"]
                if kind == "PrometheusRule":
                    (OUT / f"{name}-rules.yml").write_text(yaml.safe_dump(manifest["spec"]))
                elif kind != "PodMonitor":
                    (OUT / f"{name}-{number}-{kind}.yaml").write_text(yaml.safe_dump(manifest))
            expected = ["ConfigMap", "Deployment", "Service"]
            if name == "much":
                expected += ["ConfigMap", "PersistentVolumeClaim", "PodMonitor", "PrometheusRule"]
            assert kinds(manifests) == sorted(expected), kinds(manifests)
            configuration = next(m for m in manifests if m["kind"] == "ConfigMap" and "pgassay.toml" in m["data"])
            (OUT / f"{name}.toml").write_text(configuration["data"]["pgassay.toml"])
        for values in WRONG:
            try:
                render(chart, values)
            except helm.HelmError:
                continue
            raise AssertionError(f"these values make no sense and are taken all the same: {values}")


if __name__ == "__main__":
    # The library says on stderr that it follows links.
    silence = os.open(os.devnull, os.O_WRONLY)
    heard = os.dup(2)
    os.dup2(silence, 2)
    try:
        check()
        failed = None
    except Exception as error:
        failed = error
    os.dup2(heard, 2)
    if failed is not None:
        sys.exit(f"{type(failed).__name__}: {failed}")
