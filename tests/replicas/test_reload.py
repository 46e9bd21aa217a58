"""A folder of models that all replicas follow changes while clients send requests. Each answer is
the old model's or the new one's, and the new one's once all replicas have it."""
import contextlib
import json
import random
import tempfile
import unittest
from pathlib import Path

from fleet import PATIENCE_S, wait_until
from loading import conv_file, convolve
from quantd import Tensor, binary_request, infer_path, json_request
from test_loss import FleetTest
from traffic import Traffic, Work, content

ROW = random.Random(3).choices(range(60), k=400)
OLD, NEW = [1, 2, 1], [3, -1, 2]


def output(weights):
    return bytes(convolve(ROW, weights))


def works_of(at, name, weights, version=None):
    """Returns requests for a model, as JSON and as bytes."""
    tensor = Tensor.of("x", "UINT8", [1, 1, len(ROW)], ROW)
    forms = ((json.dumps(json_request([tensor])), {}), binary_request([tensor]))
    return [Work(at, infer_path(name, version), body, headers, {"y": output(weights)})
            for body, headers in forms]


def changed(right, old, new, version):
    """Returns the answer of another version, with the outputs as bytes after the JSON or as numbers
    in it."""
    numbers = [json.dumps(list(output(weights)), separators=(",", ":")) for weights in (old, new)]
    status, text, tail = right
    text = text.replace(*numbers).replace('"model_version":"1"', '"model_version":"%d"' % version)
    return status, text, tail and output(new)


class Reload(FleetTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        for name in ("replaced", "raised", "kept"):
            cls.write("models/%s/1/model.onnx" % name, conv_file(OLD))
        cls.write("models/kept/config.json", b'{"version_policy": {"all": {}}}')
        cls.FLAGS = (*FleetTest.FLAGS, "--model-repository", str(cls.folder / "models"),
                     "--model-control-mode", "poll", "--repository-poll-secs", "0.2")
        super().setUpClass()

    @classmethod
    def write(cls, path, data):
        """Replaces a file in one step, so that it is never half written."""
        path = cls.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        (cls.folder / "new").write_bytes(data)
        (cls.folder / "new").rename(path)

    def await_all(self, work, right):
        """Waits until every replica gives that answer."""
        for replica in self.replicas:
            with contextlib.closing(replica.server.client(PATIENCE_S)) as client:
                wait_until(lambda its=client: content(work.ask(its)) == right,
                           "%s: the new answer at %s" % (work.path, replica.address))

    def change(self, name, path, version):
        works = works_of(self.at, name, OLD)
        with Traffic(self.proxy.port, works) as traffic:
            new = [changed(work.right[0], OLD, NEW, version) for work in works]
            for work, answer in zip(works, new):
                self.assertNotEqual(work.right[0], answer)
                work.right = (work.right[0], answer)
            # A request that was sent before may only get the old answer, so it has to end first.
            traffic.go_on(1)
            self.write(path, conv_file(NEW))
            for work, answer in zip(works, new):
                self.await_all(work, answer)
                work.right = (answer,)  # for requests sent from now on
            traffic.go_on()

    def test_a_file_is_replaced(self):
        self.change("replaced", "models/replaced/1/model.onnx", 1)

    def test_a_new_version_comes(self):
        self.change("raised", "models/raised/2/model.onnx", 2)

    def test_versions_are_kept_apart(self):
        """A client that names a version in the URL sees no change, as docker/scale.md says."""
        first = works_of(self.at, "kept", OLD, version=1)
        with Traffic(self.proxy.port, first) as traffic:
            self.write("models/kept/2/model.onnx", conv_file(NEW))
            for replica in self.replicas:
                wait_until(lambda at=replica.server: at.get("/v2/models/kept/versions/2/ready")
                           .status == 200, "version 2 at %s" % replica.address)
            traffic.go_on()
            with Traffic(self.proxy.port, works_of(self.at, "kept", NEW, version=2), count=2):
                traffic.go_on()


if __name__ == "__main__":
    unittest.main()
