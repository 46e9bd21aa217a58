"""Rules that no schema can express: the documents fit each other, quantd and its image. Each rule
takes a Kit, and yields a text for each mistake."""
import re
import shlex
import subprocess
from typing import NamedTuple

import yaml

from quantd import PROGRAM, ROOT
from manifests import FOLDER

DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
IMAGE_ENVIRONMENT = dict(re.findall(r"^ENV (\w+)=(\S+)$", DOCKERFILE, re.MULTILINE))
IMAGE_USER = re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
HELP = subprocess.run([str(PROGRAM), "--help"], capture_output=True, text=True, check=True).stdout
FLAGS = set(re.findall(r"^ +(--[a-z-]+)", HELP, re.MULTILINE))
ALERTS_JOB, = set(re.findall(r'job="([^"]+)"',
                             (ROOT / "docker/prometheus/alerts.yml").read_text()))
MIB = 1 << 20


class Kit(NamedTuple):
    documents: list
    adapter: dict    # prometheus/adapter.yaml
    readme: str      # README.md beside the folders
    gauges: set      # names in a live server's /metrics

    def all(self, kind):
        return [document for document in self.documents if document["kind"] == kind]

    def pods(self):
        """Yields (kind, labels, spec) of each document that becomes pods. KServe merges its two
        documents."""
        for document in self.all("Deployment"):
            template = document["spec"]["template"]
            yield "Deployment", template["metadata"]["labels"], template["spec"]
        for runtime in self.all("ClusterServingRuntime"):
            predictors = [service["spec"]["predictor"] for service in self.all("InferenceService")]
            yield "ClusterServingRuntime", {}, dict(*predictors, **runtime["spec"])

    def containers(self):
        for kind, _, pod in self.pods():
            for container in pod["containers"]:
                yield kind, pod, container


def environment_of(container):
    own = {variable["name"]: variable["value"] for variable in container.get("env", [])}
    return dict(IMAGE_ENVIRONMENT, **own)


def setting(container, flag, default=None):
    """Returns a flag's value, from an argument or, if there is none, from a variable."""
    arguments = container.get("args", [])
    if flag in arguments:
        return arguments[arguments.index(flag) + 1]
    return environment_of(container).get("QUANTD_" + flag[2:].upper().replace("-", "_"), default)


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)([KMG]?)i?", text).groups()
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[unit]


def listens_on(container):
    return int(setting(container, "--listen").rpartition(":")[2])


def fits(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


def resolve(port, container):
    """Returns the number of a port given by its name or number, or None if the container does not
    have it."""
    ports = container.get("ports", [])
    numbers = [known["containerPort"] for known in ports if port in (known.get("name"),
                                                                     known["containerPort"])]
    return numbers[0] if numbers else None


def probes(container):
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        yield name, container.get(name, {}).get("httpGet", {})


# ---- Between documents ---------------------------------------------------------------------------


def selectors(kit):
    labels = [known for kind, known, _ in kit.pods() if kind == "Deployment"]
    wanted = []
    for document in kit.documents:
        spec = document["spec"]
        if document["kind"] == "Service":
            wanted.append(("Service", spec["selector"]))
        elif document["kind"] in ("Deployment", "PodDisruptionBudget"):
            wanted.append((document["kind"], spec["selector"]["matchLabels"]))
        elif document["kind"] == "NetworkPolicy":
            wanted.append(("NetworkPolicy", spec["podSelector"]["matchLabels"]))
    for _, _, pod in kit.pods():
        for spread in pod.get("topologySpreadConstraints", []):
            wanted.append(("topologySpreadConstraints", spread["labelSelector"]["matchLabels"]))
    for kind, selector in wanted:
        if not any(fits(selector, known) for known in labels):
            yield "%s: selects no pod: %s" % (kind, selector)
    services = [service["metadata"]["labels"] for service in kit.all("Service")]
    for monitor in kit.all("ServiceMonitor"):
        selector = monitor["spec"]["selector"]["matchLabels"]
        found = [known for known in services if fits(selector, known)]
        if not found:
            yield "ServiceMonitor: selects no Service: %s" % selector
        job = monitor["spec"].get("jobLabel")
        for known in found:
            if known.get(job) != ALERTS_JOB:
                yield "ServiceMonitor: the job is not %s, for which alerts ask" % ALERTS_JOB


def ports(kit):
    for kind, _, container in kit.containers():
        listening = listens_on(container)
        found = [("container", known["containerPort"]) for known in container["ports"]]
        found += [(name, get.get("port")) for name, get in probes(container)]
        found += [("Service", port["targetPort"]) for service in kit.all("Service")
                  for port in service["spec"]["ports"]]
        found += [("NetworkPolicy", port["port"]) for policy in kit.all("NetworkPolicy")
                  for rule in policy["spec"]["ingress"] for port in rule["ports"]]
        for where, port in found:
            if resolve(port, container) != listening:
                yield "%s: %s: port %s is not where quantd listens, %d" % (kind, where, port,
                                                                          listening)
    names = {port["name"] for service in kit.all("Service") for port in service["spec"]["ports"]}
    for monitor in kit.all("ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            if endpoint["port"] not in names:
                yield "ServiceMonitor: no Service has the port %s" % endpoint["port"]


def autoscaler(kit):
    for scaler in kit.all("HorizontalPodAutoscaler"):
        spec = scaler["spec"]
        target = spec["scaleTargetRef"]
        found = [document for document in kit.all(target["kind"])
                 if document["metadata"]["name"] == target["name"]
                 and document["apiVersion"] == target["apiVersion"]]
        if len(found) != 1:
            yield "HorizontalPodAutoscaler: scales what is not there: %s" % target
        elif "replicas" in found[0]["spec"]:
            yield "Deployment: replicas is the HorizontalPodAutoscaler's to say"
        if spec["minReplicas"] < 2:
            yield "HorizontalPodAutoscaler: one replica is none while its node is emptied"
        served = {rule["name"]["matches"]: rule for rule in kit.adapter["rules"]["custom"]}
        for metric in spec["metrics"]:
            if metric["type"] != "Pods":
                continue
            name = metric["pods"]["metric"]["name"]
            if name not in kit.gauges:
                yield "HorizontalPodAutoscaler: quantd has no gauge %s" % name
            if name not in served or not served[name]["seriesQuery"].startswith(name + "{"):
                yield "HorizontalPodAutoscaler: adapter.yaml does not serve %s" % name
            if not kit.all("ServiceMonitor"):
                yield "HorizontalPodAutoscaler: nobody scrapes %s" % name


def prometheus_comes_in(kit):
    for _ in kit.all("ServiceMonitor"):
        lets_in = [peer for policy in kit.all("NetworkPolicy") for rule in policy["spec"]["ingress"]
                   for peer in rule["from"]
                   if peer.get("namespaceSelector", {}).get("matchLabels") == {
                       "kubernetes.io/metadata.name": "monitoring"}
                   and peer.get("podSelector", {}).get("matchLabels") == {
                       "app.kubernetes.io/name": "prometheus"}]
        if not lets_in:
            yield "NetworkPolicy: Prometheus may not come in"


def egress(kit):
    """quantd opens no connections. A policy that names Egress and lists no rule lets nothing
    out."""
    for policy in kit.all("NetworkPolicy"):
        if policy["metadata"]["name"] == "quantd" and (
                "Egress" not in policy["spec"]["policyTypes"] or "egress" in policy["spec"]):
            yield "NetworkPolicy: lets something out"


def secrets(kit):
    """Secrets have the keys that README.md creates, and claims exist."""
    made = {}
    for line in re.findall(r"^kubectl create secret generic .*$", kit.readme, re.MULTILINE):
        words = shlex.split(line)
        made[words[4]] = {word.partition("=")[2] for word in words if "--from-file=" in word}
    used = []
    for _, _, pod in kit.pods():
        for volume in pod.get("volumes", []):
            used += [(source["secret"]["name"], item["key"])
                     for source in volume.get("projected", {}).get("sources", [])
                     for item in source["secret"]["items"]]
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and claim not in [known["metadata"]["name"]
                                       for known in kit.all("PersistentVolumeClaim")]:
                yield "Deployment: there is no claim %s" % claim
    for monitor in kit.all("ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            references = [endpoint.get("authorization", {}).get("credentials"),
                          endpoint.get("tlsConfig", {}).get("ca", {}).get("secret")]
            used += [(known["name"], known["key"]) for known in references if known]
    for name, key in used:
        if key not in made.get(name, ()):
            yield "README.md: makes no Secret %s with the key %s" % (name, key)


def monitor_may_ask(kit):
    for _, _, container in kit.containers():
        for monitor in kit.all("ServiceMonitor"):
            for endpoint in monitor["spec"]["endpoints"]:
                if endpoint["path"] != "/metrics":
                    yield "ServiceMonitor: metrics are at /metrics, not %s" % endpoint["path"]
                tls = setting(container, "--tls-cert") is not None
                if (endpoint.get("scheme", "http") == "https") != tls:
                    yield "ServiceMonitor: scheme is not quantd's"
                token = setting(container, "--token-file") is not None
                if ("authorization" in endpoint) != token:
                    yield "ServiceMonitor: token is not as quantd wants it"


def kserve(kit):
    runtimes = {runtime["metadata"]["name"]: runtime["spec"]
                for runtime in kit.all("ClusterServingRuntime")}
    for service in kit.all("InferenceService"):
        model = service["spec"]["predictor"]["model"]
        runtime = runtimes.get(model["runtime"])
        if runtime is None:
            yield "InferenceService: there is no runtime %s" % model["runtime"]
            continue
        if model["modelFormat"]["name"] not in [known["name"] for known in
                                                runtime["supportedModelFormats"]]:
            yield "InferenceService: the runtime does not take %s" % model["modelFormat"]["name"]
        if model["protocolVersion"] not in runtime["protocolVersions"]:
            yield "InferenceService: the runtime does not speak %s" % model["protocolVersion"]
    for runtime in runtimes.values():
        container = runtime["containers"][0]
        if container["name"] != "kserve-container":
            yield "ClusterServingRuntime: KServe calls its container kserve-container"
        if setting(container, "--model-repository") != "/mnt/models":
            yield "ClusterServingRuntime: KServe puts models at /mnt/models"
        if str(listens_on(container)) != runtime["annotations"]["prometheus.kserve.io/port"]:
            yield "ClusterServingRuntime: Prometheus is sent to another port"


# ---- Between a container, quantd and the image ---------------------------------------------------


def command_line(kit):
    for kind, _, container in kit.containers():
        if container["image"] != "quantd:latest" or "command" in container:
            yield "%s: is not what `make image` makes" % kind
        for word in container.get("args", []):
            if word.startswith("--") and word not in FLAGS:
                yield "%s: quantd has no flag %s" % (kind, word)
        environment = environment_of(container)
        for name in environment:
            if "--" + name[len("QUANTD_"):].lower().replace("_", "-") not in FLAGS:
                yield "%s: quantd has no variable %s" % (kind, name)
        result = subprocess.run([str(PROGRAM), *container.get("args", []), "--version"],
                                env=environment, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            yield "%s: %s" % (kind, result.stderr.strip())


def files_are_mounted(kit):
    """Each file or folder in quantd's flags lies in a volume. KServe mounts its own."""
    for kind, pod, container in kit.containers():
        mounted = {"/mnt/models"} if kind == "ClusterServingRuntime" else set()
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            mounted.add(mount["mountPath"])
            for source in volumes[mount["name"]].get("projected", {}).get("sources", []):
                mounted.update(mount["mountPath"] + "/" + item["path"]
                               for item in source["secret"]["items"])
            if not mount["readOnly"]:
                yield "%s: quantd writes nothing to %s" % (kind, mount["mountPath"])
        for flag in ("--token-file", "--tls-cert", "--tls-key", "--model-repository"):
            path = setting(container, flag)
            if path is not None and path not in mounted:
                yield "%s: %s: nothing is mounted at %s" % (kind, flag, path)


def health(kit):
    paths = {"startupProbe": "/v2/health/live", "readinessProbe": "/v2/health/ready",
             "livenessProbe": "/v2/health/live"}
    for kind, _, container in kit.containers():
        scheme = "HTTPS" if setting(container, "--tls-cert") else "HTTP"
        for name, get in probes(container):
            if get.get("path") != paths[name]:
                yield "%s: %s: asks %s, not %s" % (kind, name, get.get("path"), paths[name])
            if get.get("scheme", "HTTP") != scheme:
                yield "%s: %s: quantd speaks %s" % (kind, name, scheme)


def time_to_drain(kit):
    for kind, pod, container in kit.containers():
        needed = (float(setting(container, "--drain-timeout"))
                  + container["lifecycle"]["preStop"]["sleep"]["seconds"])
        if pod["terminationGracePeriodSeconds"] < needed + 5:
            yield "%s: is killed after %s s, and needs %s to drain" % (
                kind, pod["terminationGracePeriodSeconds"], needed)


def memory_needed(container):
    """Returns how many bytes a container needs, as docker/README.md computes it under Size."""
    connections = int(setting(container, "--max-connections"))
    of_one = 44 if setting(container, "--tls-cert") else 33
    return (8 * MIB + (connections + 64) * of_one * 1024
            + int(setting(container, "--threads")) * 12 * MIB
            + bytes_of(setting(container, "--max-inflight-bytes"))
            + bytes_of(setting(container, "--max-model-bytes"))
            + connections * 260 * 1024 + 16 * MIB)


def resources(kit):
    for kind, _, container in kit.containers():
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        needed = memory_needed(container)
        if bytes_of(limits["memory"]) < needed:
            yield "%s: a limit of %s, and the flags want %d MiB" % (kind, limits["memory"],
                                                                    needed // MIB)
        if requests["memory"] != limits["memory"]:
            yield "%s: memory is requested as it is limited" % kind
        if "| %d" % round(needed / MIB) not in kit.readme and (
                "or %d |" % round(needed / MIB) not in kit.readme):
            yield "README.md: does not say that all is %d MiB" % round(needed / MIB)
        threads = int(setting(container, "--threads"))
        if int(requests["cpu"]) != threads or int(limits["cpu"]) < threads + int(
                setting(container, "--io-threads", "1")):
            yield "%s: CPUs are not those of %d threads" % (kind, threads)


def restricted(kit):
    """The pods satisfy the Pod Security Standard "restricted", and run as the image's user."""
    for kind, pod, container in kit.containers():
        own = container["securityContext"]
        context = dict(pod.get("securityContext", {}), **own)
        wanted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"},
                  "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                  "capabilities": {"drop": ["ALL"]}, "runAsUser": int(IMAGE_USER[1]),
                  "runAsGroup": int(IMAGE_USER[2])}
        for name, value in wanted.items():
            if context.get(name) != value:
                yield "%s: %s is not %s" % (kind, name, value)
        if pod.get("automountServiceAccountToken") is not False:
            yield "%s: quantd needs no account" % kind
        secret = any("projected" in volume for volume in pod.get("volumes", []))
        if secret and context.get("fsGroup") != int(IMAGE_USER[2]):
            yield "%s: fsGroup: quantd's user may not read the Secrets" % kind


RULES = (selectors, ports, autoscaler, prometheus_comes_in, egress, secrets, monitor_may_ask,
         kserve, files_are_mounted, health, time_to_drain, resources, restricted)


def findings(kit):
    """Checks the command line first, because the other rules look up flags that must be right."""
    return list(command_line(kit)) or [finding for rule in RULES for finding in rule(kit)]


def kit_of(documents, gauges, folder=FOLDER):
    return Kit(documents, yaml.safe_load((folder / "prometheus" / "adapter.yaml").read_text()),
               (folder / "README.md").read_text(), gauges)
