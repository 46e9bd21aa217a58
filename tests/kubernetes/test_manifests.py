"""docker/kubernetes/: the documents that kustomize builds from each folder fit Kubernetes' schemas
and quantd; a mistake in a copy is found; and quantd runs with the configuration of its pods."""
import os
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import manifests
import rules
from loading import chain_file
from quantd import Server
from tls import make_certificate

OVERLAYS = ("base", "production", "kserve")
COMPONENTS = ("models", "prometheus", "tls-token")
REQUIRED = os.environ.get("REQUIRE") == "all" or os.environ.get("CI") == "true"


def gauges_of(text):
    return set(re.findall(r"^# TYPE (\w+) gauge$", text, re.MULTILINE))


class FilesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server()
        cls.gauges = gauges_of(server.get("/metrics").body.decode())
        server.stop()

    def folder(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        return Path(holder.name)

    def findings(self, documents, versions=manifests.VERSIONS, folder=manifests.FOLDER):
        found = [finding for document in documents
                 for finding in manifests.schema_findings(document, versions)]
        # Rules may rely on what the schemas guarantee.
        return found or rules.findings(rules.kit_of(documents, self.gauges, folder))


class Files(FilesTest):
    def test_overlays(self):
        for name in OVERLAYS:
            with self.subTest(name):
                self.assertEqual(self.findings(manifests.overlay(name)), [])

    def test_components_alone(self):
        folder = self.folder()
        shutil.copytree(manifests.FOLDER, folder / "kubernetes")
        alone = ["kubernetes/with-" + name for name in COMPONENTS]
        for path, name in zip(alone, COMPONENTS):
            manifests.write_kustomization(folder / path, ["../base"], "components: [../%s]" % name)
        for name, documents in zip(COMPONENTS, manifests.build_copies(folder, alone)):
            with self.subTest(name):
                self.assertEqual(self.findings(documents), [])

    def test_definitions(self):
        """Every definition is there, or the test says which are missing."""
        missing = [document["kind"] for name in OVERLAYS
                   for document in manifests.overlay(name)
                   if manifests.is_custom(document)
                   and not manifests.definition_path(document).exists()]
        if missing and not REQUIRED:
            self.skipTest("go is not installed, so nobody has looked at " + ", ".join(missing))
        self.assertEqual(missing, [])


# The file, the text in it, the text that replaces it, and the error then found in the overlay.
MISTAKES = (
    ("base/deployment.yaml", "startupProbe:", "startProbe:", "schema: "),
    ("base/deployment.yaml", "failureThreshold: 60", "failureThreshold: many", "schema: "),
    ("base/deployment.yaml", "      labels: {app.kubernetes.io/name: quantd}\n    spec:",
     "      labels: {app: quantd}\n    spec:", "Service: selects no pod"),
    ("base/deployment.yaml", "containerPort: 8000", "containerPort: 8001", "not where quantd"),
    ("base/deployment.yaml", "path: /v2/health/ready", "path: /ready", "readinessProbe: asks"),
    ("base/deployment.yaml", "--max-connections", "--max-connection", "no flag --max-connection"),
    ("base/deployment.yaml", '"1000"', '"4096"', r"a limit of 1Gi, and the flags want \d+ MiB"),
    ("base/deployment.yaml", "512M", "600M", r"a limit of 1Gi, and the flags want \d+ MiB"),
    ("base/deployment.yaml", "128M", "64M", "does not say that all is"),
    ("base/deployment.yaml", '--threads, "2"', '--threads, "4"', "CPUs are not those"),
    ("base/deployment.yaml", "PeriodSeconds: 45", "PeriodSeconds: 30", "is killed after 30 s"),
    ("base/deployment.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot is not"),
    ("base/deployment.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false",
     "readOnlyRootFilesystem is not"),
    ("base/deployment.yaml", "runAsUser: 65532", "runAsUser: 1000", "runAsUser is not 65532"),
    ("base/deployment.yaml", "  strategy:", "  replicas: 3\n  strategy:", "replicas is the"),
    ("base/service.yaml", "targetPort: http", "targetPort: web", "Service: port web"),
    ("base/service.yaml", "name: http,", "name: web,", "no Service has the port http"),
    ("base/service.yaml", "  labels: {app.kubernetes.io/name: quantd}", "  labels: {app: quantd}",
     "ServiceMonitor: selects no Service"),
    ("base/autoscaler.yaml", "kind: Deployment, name: quantd", "kind: Deployment, name: quant",
     "scales what is not there"),
    ("base/autoscaler.yaml", "autoscaling/v2", "autoscaling/v2beta2", "schema: "),
    ("base/disruption-budget.yaml", "name: quantd}", "name: quant}",
     "PodDisruptionBudget: selects no pod"),
    ("base/network-policy.yaml", "port: http", "port: 80", "NetworkPolicy: port 80"),
    ("base/network-policy.yaml", ", Egress", "", "lets something out"),
    ("prometheus/autoscaler.yaml", "quantd_queue_length", "quantd_queue", "no gauge quantd_queue"),
    ("prometheus/adapter.yaml", "matches: quantd_queue_length", "matches: quantd_queue",
     "adapter.yaml does not serve"),
    ("prometheus/kustomization.yaml", "  - network-policy.yaml\n", "", "Prometheus may not come"),
    ("prometheus/service-monitor.yaml", "port: http", "port: metrics", "has the port metrics"),
    ("prometheus/service-monitor.yaml", "jobLabel: app.kubernetes.io/name", "jobLabel: app",
     "the job is not quantd"),
    ("prometheus/service-monitor.yaml", "/metrics", "/metric", "metrics are at /metrics"),
    ("tls-token/deployment.yaml", "readinessProbe:\n            httpGet: {scheme: HTTPS}",
     "readinessProbe: {}", "readinessProbe: quantd speaks HTTPS"),
    ("tls-token/deployment.yaml", "QUANTD_TOKEN_FILE", "QUANTD_TOKENS",
     "no variable QUANTD_TOKENS"),
    ("tls-token/deployment.yaml", "path: tls.key", "path: key", "nothing is mounted at"),
    ("tls-token/deployment.yaml", "fsGroup: 65532", "fsGroup: 1000", "fsGroup: quantd's user"),
    ("tls-token/service-monitor.yaml", "value: https", "value: http", "scheme is not quantd's"),
    ("tls-token/service-monitor.yaml", "key: prometheus", "key: token", "with the key token"),
    ("models/deployment.yaml", "claimName: quantd-models", "claimName: models", "no claim models"),
    ("models/deployment.yaml", "mountPath: /models", "mountPath: /model", "nothing is mounted at"),
    ("models/deployment.yaml", "value: poll", "value: follow", "expected none, explicit or poll"),
    ("README.md", "--from-file=ca.crt", "", "no Secret quantd-tls with the key ca.crt"),
    ("kserve/runtime.yaml", "0.0.0.0:8080", "0.0.0.0:8000", "not where quantd listens, 8000"),
    ("kserve/runtime.yaml", "/mnt/models", "/models", "KServe puts models at /mnt/models"),
    ("kserve/runtime.yaml", "name: kserve-container", "name: quantd", "calls its container"),
    ("kserve/inference-service.yaml", "name: onnx", "name: quantd", "does not take quantd"),
    ("kserve/inference-service.yaml", "runtime: quantd", "runtime: triton", "no runtime triton"),
    ("kserve/inference-service.yaml", "PeriodSeconds: 45", "PeriodSeconds: 20",
     "is killed after 20 s"),
)
# Mistakes in documents that are not Kubernetes' own. Only definitions find them.
CUSTOM_MISTAKES = (
    ("kserve/inference-service.yaml", "storageUri", "storageURL", "InferenceService: schema: "),
    ("kserve/inference-service.yaml", "scaleMetric: cpu", "scaleMetric: queue",
     "InferenceService: schema: "),
    ("kserve/runtime.yaml", "protocolVersions: [v2]", "protocolVersions: v2",
     "ClusterServingRuntime: schema: "),
    ("kserve/runtime.yaml", "live, port: 8080}\n        periodSeconds: 2",
     "live}\n        periodSeconds: 2",
     "ClusterServingRuntime: schema: .*port"),
    ("prometheus/service-monitor.yaml", "interval: 15s", "interval: quarter",
     "ServiceMonitor: schema: "),
    ("prometheus/service-monitor.yaml", "path: /metrics", "paths: /metrics",
     "ServiceMonitor: schema: "),
)


class Mistakes(FilesTest):
    """Shows that the tests can fail: each mistake is made alone, in a copy of files without
    mistakes."""

    def find(self, mistakes):
        folder = self.folder()
        overlays = []
        for index, (file, old, new, _) in enumerate(mistakes):
            copy = folder / str(index)
            shutil.copytree(manifests.FOLDER, copy)
            text = (copy / file).read_text()
            self.assertIn(old, text, file)
            (copy / file).write_text(text.replace(old, new))
            overlay = "kserve" if file.startswith("kserve/") else "production"
            overlays.append("%d/%s" % (index, overlay))
        built = manifests.build_copies(folder, overlays)
        for index, (file, _, new, expected) in enumerate(mistakes):
            with self.subTest(file=file, mistake=new):
                found = self.findings(built[index], manifests.VERSIONS[-1:], folder / str(index))
                self.assertTrue(any(re.search(expected, finding) for finding in found), found)

    def test_found(self):
        self.find(MISTAKES)

    @unittest.skipUnless(REQUIRED or shutil.which("go"), "go is not installed")
    def test_found_by_definitions(self):
        self.find(CUSTOM_MISTAKES)


class Pods(unittest.TestCase):
    """Runs quantd with a pod's arguments and variables, and with files in place of its volumes."""

    def start(self, overlay):
        kit = rules.kit_of(manifests.overlay(overlay), set())
        (_, pod, container), = kit.containers()
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        make_certificate(self.folder, "tls")
        (self.folder / "tokens").write_text("secret prometheus\n")
        (self.folder / "chain" / "1").mkdir(parents=True)
        (self.folder / "chain" / "1" / "model.onnx").write_bytes(chain_file())

        def here(text):
            for path in ("/run/secrets/quantd", "/mnt/models", "/models"):
                if text == path or text.startswith(path + "/"):
                    return str(self.folder) + text[len(path):]
            return text

        environment = {name: here(value) for name, value in rules.environment_of(container).items()
                       if name != "QUANTD_LISTEN"}
        server = Server(*map(here, container["args"]), env=environment)
        self.addCleanup(server.stop)
        return server, container

    def ask(self, server, path, token=""):
        headers = {"Authorization": "Bearer " + token} if token else {}
        return server.request("GET", path, headers=headers)

    def test_probes(self):
        for overlay in OVERLAYS:
            with self.subTest(overlay):
                server, container = self.start(overlay)
                for name, get in rules.probes(container):
                    self.assertEqual(self.ask(server, get["path"]).status, 200, name)
                self.assertEqual(bool(server.tls), overlay == "production")

    def test_metrics(self):
        server, _ = self.start("production")
        self.assertEqual(self.ask(server, "/metrics").status, 401)
        self.assertIn("quantd_queue_length",
                      gauges_of(self.ask(server, "/metrics", "secret").body.decode()))

    def test_models(self):
        for overlay in ("production", "kserve"):
            with self.subTest(overlay):
                server, _ = self.start(overlay)
                answer = self.ask(server, "/v2/models/chain/ready", "secret")
                self.assertEqual(answer.status, 200, answer.body)

    def test_limits(self):
        """The limits are those of the arguments: nothing else overrides them."""
        server, container = self.start("base")
        properties = self.ask(server, "/v2").json()["properties"]
        for flag in ("--max-inflight-bytes", "--max-model-bytes"):
            self.assertEqual(int(properties[flag[2:]]),
                             rules.bytes_of(rules.setting(container, flag)))
        for flag in ("--threads", "--max-connections", "--drain-timeout"):
            self.assertEqual(properties[flag[2:]], rules.setting(container, flag))


if __name__ == "__main__":
    unittest.main()
