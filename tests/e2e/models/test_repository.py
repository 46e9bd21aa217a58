"""Models in a repository: loaded at the start, by name, or when they change."""
import json
import os
import shutil
import signal
import struct
import subprocess
import time
import unittest

from loading import (POLL, RepositoryTest, conv_file, external_file, kept_binary_request,
                     kept_request)
from quantd import COMMAND, SLOW, Server, unless_emulated

WEIGHTS = [1, 2, 1]


class AtStart(RepositoryTest):
    """--model-control-mode none."""

    def test_all_models_are_in_service_when_it_listens(self):
        text, blobs = kept_binary_request([1, 1])
        self.write("onnx/1/model.onnx", conv_file(WEIGHTS))
        self.write("json/3/request.json", json.dumps(kept_request([2, 1])))
        self.write("binary/1/request.json", text)
        self.write("binary/1/request.bin", blobs)
        self.write("external/1/model.onnx", external_file("weights.bin", 1))
        self.write("external/1/weights.bin", struct.pack("4b", 9, 1, 1, 1))
        self.write("deeper/1/model.onnx", external_file("data/weights.bin"))
        self.write("deeper/1/data/weights.bin", struct.pack("3b", 3, 2, 1))
        self.start()
        self.assert_convolves("onnx", WEIGHTS)
        self.assert_convolves("json", [2, 1], 3)
        self.assert_convolves("binary", [1, 1])
        self.assert_convolves("external", [1, 1, 1])
        self.assert_convolves("deeper", [3, 2, 1])
        self.assert_error(self.post("onnx", "load"), 503, 'got "none"')
        self.assert_error(self.post("onnx", "unload"), 503, 'got "none"')

    def test_versions_and_what_is_passed_over(self):
        for version in (1, 3, 20):
            self.write("layer/%d/model.onnx" % version, conv_file([version, 1]))
        self.write("layer/0/model.onnx", b"x")
        self.write("layer/03/model.onnx", b"x")
        self.write("layer/old/model.onnx", b"x")
        self.write(".git/1/model.onnx", b"x")
        self.write("onnx.mine/1/model.onnx", b"x")
        self.write("README", b"x")
        self.write("all/config.json", '{"version_policy": {"all": {}}}')
        for version in (1, 3, 20):
            self.write("all/%d/model.onnx" % version, conv_file([version, 1]))
        self.write("all/config.pbtxt", 'max_batch_size: 4')
        self.start()
        self.assertEqual([entry["version"] for entry in self.entries("layer")], ["20"])
        self.assert_convolves("layer", [20, 1])
        self.assertEqual([entry["version"] for entry in self.entries("all")], ["1", "3", "20"])
        for version in (1, 3, 20):
            self.assert_convolves("all", [version, 1], version)
        self.server.wait_for_log("config.pbtxt is not read, because there is a config.json")
        self.server.wait_for_log('got \\"onnx.mine\\""\n')

    def test_a_model_that_cannot_be_loaded_ends_the_start(self):
        self.write("good/1/model.onnx", conv_file(WEIGHTS))
        for path, data, words in (
                ("bad/1/model.onnx", b"x", "bad/1/model.onnx: "),
                ("bad/1/other.onnx", b"x", "bad/1: expected model.onnx or request.json"),
                ("bad/one/model.onnx", b"x", "a model of --model-repository: bad: expected a "
                 "version, got none: a folder such as bad/1, whose name is a number above 0"),
                ("bad/01/model.onnx", b"x", "above 0 without zeros before it"),
                ("bad/2/model.onnx", conv_file(WEIGHTS, colour="red"), "node 0"),
                ("bad/2/model.onnx", conv_file(WEIGHTS, colour="red"), "colour"),
                ("bad/1/request.json", b"{}", "bad/1/request.json: model_name"),
                ("bad/config.json", b"{", "bad/config.json: malformed JSON"),
                ("bad/config.json", b" " * (1 << 20) + b"{}", "bad/config.json: expected at most "
                 "1048576 bytes, got 1048578"),
                ("bad/1/model.onnx", external_file("weights.bin"), "weights.bin")):
            self.write(path, data)
            line = self.fail_to_start()
            self.assertIn(words, line)
            self.assertTrue(line.endswith("; --no-exit-on-error starts without this model"), line)
            shutil.rmtree(self.folder / "bad")
        self.write("bad/1/model.onnx", b"x")
        self.start("--exit-on-error", "off")
        self.assert_convolves("good", WEIGHTS)
        self.assertEqual(self.states("bad"), ["UNAVAILABLE"])
        self.assertIn("bad/1/model.onnx", self.entries("bad")[0]["reason"])
        self.assertEqual(self.entries("bad", ready=True), [])
        self.assertEqual(len(self.entries("good", ready=True)), 1)

    def test_nothing_more_is_loaded_after_an_error_that_ends_the_start(self):
        self.write("a/1/model.onnx", b"x")
        self.write("b/1/model.onnx", conv_file(WEIGHTS))
        result = subprocess.run([*COMMAND, "--listen", "127.0.0.1:0", "--model-repository",
                                 str(self.folder)], stdin=subprocess.DEVNULL, capture_output=True,
                                timeout=30 * SLOW, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"a/1/model.onnx: ", result.stderr)
        self.assertNotIn(b"model loaded", result.stderr)

    def test_an_empty_repository_is_said(self):
        self.start()
        self.server.wait_for_log("the repository has no models")

    def test_the_folder_that_holds_the_repository(self):
        self.write("all/models/layer/1/model.onnx", conv_file(WEIGHTS))
        for folder, known in ((self.folder, "all"), (self.folder / "all", "models")):
            self.folder = folder
            self.assertIn("with model.onnx or request.json in it; if it is a repository itself or "
                          "holds one, give that to --model-repository; ", self.fail_to_start())
            self.assertIn(f'got "layer"; the repository has {known}; if one of these folders '
                          "is or holds the repository, give that to --model-repository; ",
                          self.fail_to_start("--model-control-mode", "explicit", "--load-model",
                                             "layer"))

    def test_the_folder_of_one_model_or_version(self):
        models = self.folder
        self.write("layer/1/model.onnx", conv_file(WEIGHTS))
        hint = ("; if --model-repository is the folder of one model or version, give the folder "
                "that holds the model's")
        looks = "the repository looks like a version of one model"
        explicit = ("--model-control-mode", "explicit")
        for folder, known in (("layer", "1"), ("layer/1", "model")):
            self.folder = models / folder
            self.assertIn('got "layer"; the repository has %s%s' % (known, hint),
                          self.fail_to_start(*explicit, "--load-model", "layer"))
        self.start()
        self.server.wait_for_log(looks)
        self.folder = models / "layer/1/model.onnx"
        self.assertIn("cannot be opened as a folder: Not a directory; --model serves a file",
                      self.fail_to_start())
        self.folder = models / "layer"
        self.start(*explicit)
        for name in ("1", "2", "layer"):
            answer = self.post(name, "load")
            self.assertNotIn(str(models.resolve()), answer.json()["error"])
        os.rename(self.folder, models / "away")
        answer = self.post("1", "load")
        os.rename(models / "away", self.folder)
        self.assertEqual(answer.json()["error"], "the repository: cannot be opened as a folder: "
                                                 "No such file or directory")
        self.assert_error(self.post("1", "load"), 400, "1: expected a model's folder, got a "
                          "version's; if --model-repository is the folder of one model, give its "
                          "parent folder")
        self.assert_error(self.post("layer", "load"), 404, "layer.onnx, got neither")

    def test_a_repository_whose_name_is_a_number(self):
        self.folder = self.folder / "20261129"
        self.write("layer/1/model.onnx", conv_file(WEIGHTS))
        self.write("model.onnx", conv_file(WEIGHTS))
        self.start("--model-control-mode", "explicit")
        for name in ("2", "20261129"):
            self.assertTrue(self.post(name, "load").json()["error"].endswith("got neither"))
        self.assertNotIn("looks like", self.server.wait_for_log("got neither", 2))
        line = self.fail_to_start("--model-control-mode", "explicit", "--load-model", "20261129")
        self.assertIn('got "20261129"; the repository has layer, model; --no-exit-on-error', line)

    def test_flags_that_do_not_fit(self):
        self.write("layer/1/model.onnx", conv_file(WEIGHTS))
        self.assertIn("--load-model: expected --model-control-mode explicit",
                      self.fail_to_start("--load-model", "layer", status=2))
        explicit = ("--model-control-mode", "explicit")
        self.assertIn('--load-model: expected a model of the repository, got "nothing"; '
                      "the repository has layer; --no-exit-on-error starts without this model",
                      self.fail_to_start(*explicit, "--load-model", "layer,nothing"))
        self.assertIn("expected --model-repository",
                      self.fail_to_start(*explicit, "--load-model", "*", repository=False,
                                         status=2))
        self.assertIn("expected --model-repository",
                      self.fail_to_start("--model-control-mode", "poll", repository=False,
                                         status=2))
        shutil.rmtree(self.folder)
        self.assertIn("--model-repository", self.fail_to_start())

    @unless_emulated("QEMU 7.2 has no openat2, without which no link is followed")
    def test_hostile_folders(self):
        outside = self.folder.parent / "outside"
        (outside / "1").mkdir(parents=True)
        (outside / "1/model.onnx").write_bytes(conv_file(WEIGHTS))
        (outside / "weights.bin").write_bytes(b"\1\2\1")
        bad = self.folder / "bad"

        def link_model():
            bad.symlink_to(outside)

        def link_version():
            bad.mkdir()
            (bad / "1").symlink_to(outside / "1")

        def link_file():
            (bad / "1").mkdir(parents=True)
            (bad / "1/model.onnx").symlink_to("../../../outside/1/model.onnx")

        def link_weights():
            self.write("bad/1/model.onnx", external_file("weights.bin"))
            (bad / "1/weights.bin").symlink_to("../../../outside/weights.bin")

        def weights_elsewhere():
            self.write("bad/1/model.onnx", external_file("../../../outside/weights.bin"))

        def weights_of_another_model():
            self.write("bad/1/model.onnx", external_file("../../good/1/model.onnx"))

        def weights_from_the_root():
            self.write("bad/1/model.onnx", external_file(str(outside / "weights.bin")))

        def fifo():
            (bad / "1").mkdir(parents=True)
            os.mkfifo(bad / "1/model.onnx")

        def fifo_of_weights():
            self.write("bad/1/model.onnx", external_file("weights.bin"))
            os.mkfifo(bad / "1/weights.bin")

        def folder():
            (bad / "1/model.onnx").mkdir(parents=True)

        def huge():
            self.write("bad/1/model.onnx", b"")
            os.truncate(bad / "1/model.onnx", 1 << 42)

        def short_weights():
            self.write("bad/1/model.onnx", external_file("weights.bin", 1 << 40))
            self.write("bad/1/weights.bin", b"\1\2\1")

        def loop():
            bad.mkdir()
            (bad / "1").symlink_to("1")

        self.write("good/1/model.onnx", conv_file(WEIGHTS))
        for make in (link_model, link_version, link_file, link_weights, weights_elsewhere,
                     weights_of_another_model, weights_from_the_root, fifo, fifo_of_weights,
                     folder, huge, short_weights, loop):
            make()
            line = self.fail_to_start()
            self.assertIn("bad", line, make.__name__)
            if make.__name__.startswith("link"):
                self.assertIn("where it is looked for", line)
            if make is loop:  # an emulator without openat2 refuses each link
                self.assertRegex(line, "got a loop of links|where it is looked for")
            server = Server("--model-repository", str(self.folder), "--exit-on-error", "off")
            self.server = server
            self.assert_convolves("good", WEIGHTS)
            self.assertNotEqual(self.ask("bad", [1, 2, 3, 4]).status, 200, make.__name__)
            server.stop()
            if bad.is_symlink():
                bad.unlink()
            else:
                shutil.rmtree(bad)

    @unless_emulated("QEMU 7.2 has no openat2, without which no link is followed")
    def test_links_inside_are_followed(self):
        self.write("store/config.json", "{}")
        self.write("store/1/real.onnx", conv_file(WEIGHTS))
        (self.folder / "store/1/model.onnx").symlink_to("real.onnx")
        (self.folder / "store/2").symlink_to("1")
        (self.folder / "link").symlink_to("store")
        self.start()
        self.assert_convolves("store", WEIGHTS, 2)
        self.assert_convolves("link", WEIGHTS, 2)

    @unless_emulated("QEMU 7.2 has no openat2, without which no link is followed")
    def test_broken_links_are_reported(self):
        self.write("m/1/model.onnx", conv_file(WEIGHTS))
        (self.folder / "m/2").symlink_to("missing")
        self.assertIn("m/2: expected a folder, got a link to nothing", self.fail_to_start())
        (self.folder / "m/2").unlink()
        (self.folder / "m/notes").symlink_to("missing")  # not a version
        (self.folder / "gone").symlink_to("missing")
        self.assertIn("gone: expected a folder, got a link to nothing", self.fail_to_start())
        for names in ("gone", "m,gone", "*"):  # the error is printed once
            self.assertIn("gone: expected a folder, got a link to nothing",
                          self.fail_to_start("--model-control-mode", "explicit", "--load-model",
                                             names, "--log-level", "warn"))
        self.start("--exit-on-error", "off")
        self.assert_convolves("m", WEIGHTS)
        self.assertIn("gone: expected a folder, got a link to nothing", str(self.entries("gone")))

    @unless_emulated("QEMU 7.2 has no openat2, without which no link is followed")
    def test_a_broken_link_does_not_load_an_older_version(self):
        self.write("m/1/model.onnx", conv_file(WEIGHTS))
        (self.folder / "m/2").symlink_to("missing")
        self.start("--model-control-mode", "explicit")
        self.assert_error(self.post("m", "load"), 400,
                          "m/2: expected a folder, got a link to nothing")

    def test_the_end_while_models_load(self):
        large = conv_file([1] * 3 * 2048 * 2048, dims=(1, 2048, "n"), w_dims=[2048, 2048, 3])
        for i in range(5):
            self.write("m%d/1/model.onnx" % i, large)
        for seconds in (0.01, 0.05, 0.1, 0.2):
            process = subprocess.Popen([*COMMAND, "--listen", "127.0.0.1:0",
                                        "--model-repository", str(self.folder)],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            time.sleep(seconds)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20 * SLOW)
            # Before the server has installed its handlers, the signal ends it as any process.
            self.assertIn(process.returncode, (0, -signal.SIGTERM))


class ByName(RepositoryTest):
    """--model-control-mode explicit."""

    def start(self, *flags):
        super().start("--model-control-mode", "explicit", *flags)

    def test_loaded_at_start(self):
        for name in ("a", "b", "c", "d"):
            self.write("%s/1/model.onnx" % name, conv_file(WEIGHTS))
        self.write("bad/1/model.onnx", b"x")
        self.start("--load-model", "a,b", "--load-model=d")
        for name in ("a", "b", "d"):
            self.assert_convolves(name, WEIGHTS)
        self.assertEqual(self.states("c"), ["UNAVAILABLE"])
        self.assertEqual(self.entries("c")[0]["reason"], "not loaded")
        self.assert_error(self.ask("c", [1, 2, 3]), 404, "not loaded")

    def test_all_of_them(self):
        for name in ("a", "b"):
            self.write("%s/1/model.onnx" % name, conv_file(WEIGHTS))
        self.start("--load-model", "*")
        for name in ("a", "b"):
            self.assert_convolves(name, WEIGHTS)

    def test_calls(self):
        self.write("a/1/model.onnx", conv_file(WEIGHTS))
        self.write("a/2/model.onnx", conv_file([2, 2]))
        self.start()
        self.assert_done(self.post("a", "load"))
        self.assert_convolves("a", [2, 2])
        # A configuration without files is applied to the folder's files.
        body = {"parameters": {"config": json.dumps({"version_policy": {"all": {}}})}}
        self.assert_done(self.post("a", "load", body))
        self.assert_convolves("a", WEIGHTS, 1)
        self.assert_convolves("a", [2, 2], 2)
        # Files in the call take precedence over the folder's.
        self.assert_done(self.load_files("a", "{}", model_onnx=conv_file([3, 3])))
        self.assert_convolves("a", [3, 3])
        self.write("a/3/model.onnx", conv_file([4, 4]))
        self.assert_done(self.post("a", "load"))
        self.assert_convolves("a", [4, 4], 3)
        self.write("a/4/model.onnx", b"x")
        self.assert_error(self.post("a", "load"), 400, "a/4/model.onnx")
        self.assert_convolves("a", [4, 4], 3)
        self.assert_done(self.post("a", "unload", {"parameters": {"unload_dependents": False}}))
        self.assertEqual(self.entries("a"), [{"name": "a", "version": "3", "state": "UNAVAILABLE",
                                              "reason": "unloaded"}])
        self.assert_error(self.ask("a", [1, 2, 3]), 404, "unloaded")
        reason = "z: expected a folder of this name in the repository, or z.onnx, got neither"
        self.assert_error(self.post("z", "load"), 404, reason)
        self.assertEqual(self.entries("z"), [
            {"name": "z", "state": "UNAVAILABLE", "reason": reason}])
        self.assert_error(self.post("z", "load", {"file": "x"}), 404, reason + "; a file comes as "
                          'base64 in JSON: {"parameters": {"file:1/model.onnx": "..."}}')

    def test_as_many_models_as_there_may_be(self):
        """One name may have 64 versions."""
        request = json.dumps(kept_request(WEIGHTS))
        for i in range(16):
            self.write("m%d/config.json" % i, '{"version_policy": {"all": {}}}')
            for version in range(1, 65):
                self.write("m%d/%d/request.json" % (i, version), request)
        self.write("more/1/request.json", request)
        self.start("--load-model", "*", "--exit-on-error", "off")
        reason = ("the loaded models: expected at most 1024 versions of all names together, "
                  'got 1025 with "more"; unload some')
        self.assertEqual(self.entries("more"),
                         [{"name": "more", "state": "UNAVAILABLE", "reason": reason}])
        answer = self.post("more", "load")
        self.assert_error(answer, 503, reason)
        self.assertIn("Retry-After", answer.headers)
        self.assert_done(self.post("m0", "load"))
        self.assert_convolves("m15", WEIGHTS, 64)
        self.assert_done(self.post("m0", "unload"))
        self.assert_done(self.post("more", "load"))
        self.assert_convolves("more", WEIGHTS)

    def test_a_folder_that_comes_later(self):
        self.start()
        self.assert_error(self.post("a", "load"), 404)
        self.write("a/1/model.onnx", conv_file(WEIGHTS))
        self.assert_done(self.post("a", "load"))
        self.assert_convolves("a", WEIGHTS)


class Polling(RepositoryTest):
    """--model-control-mode poll."""

    def start(self, *flags):
        super().start(*POLL, *flags)

    def test_changes_are_followed(self):
        self.write("a/1/model.onnx", conv_file(WEIGHTS))
        self.write("b/1/model.onnx", conv_file(WEIGHTS))
        self.start()
        self.assert_convolves("a", WEIGHTS)
        self.assert_error(self.post("a", "unload"), 503, 'got "poll"')
        self.follow("c/1/model.onnx", [1, 1])
        self.follow("a/1/model.onnx", [3, 1])
        self.follow("a/2/model.onnx", [4, 1])
        shutil.rmtree(self.folder / "a/2")
        self.wait_for(lambda: self.is_convolving("a", [3, 1]))
        shutil.rmtree(self.folder / "b")
        self.wait_for(lambda: self.ask("b", [1, 2, 3]).status == 404)
        self.wait_for(lambda: self.entries("b") == [])
        self.follow("b/1/model.onnx", WEIGHTS)
        self.write("a/config.json", '{"version_policy": {"specific": {"versions": [9]}}}')
        self.wait_for(lambda: "got 9" in self.entries("a")[0].get("reason", ""))
        self.assert_convolves("a", [3, 1])

    def test_what_is_half_written_leaves_what_is_in_service(self):
        data = conv_file([5, 1])
        self.write("a/1/model.onnx", conv_file(WEIGHTS))
        self.start()
        path = self.folder / "a/1/model.onnx"
        for end in (0, 10, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:end])
            self.wait_for(lambda: "reason" in self.entries("a")[0])
            self.assert_convolves("a", WEIGHTS)
            path.write_bytes(conv_file(WEIGHTS))
            self.wait_for(lambda: "reason" not in self.entries("a")[0])
        path.write_bytes(data)
        self.wait_for(lambda: self.is_convolving("a", [5, 1]))

    def test_external_data_that_change(self):
        self.write("a/1/model.onnx", external_file("w"))
        self.write("a/1/w", bytes(WEIGHTS))
        self.start()
        self.assert_convolves("a", WEIGHTS)
        self.write("a/1/w", b"\3\2\1")
        self.wait_for(lambda: self.is_convolving("a", [3, 2, 1]))

    def test_a_repository_that_cannot_be_read_changes_nothing(self):
        self.write("a/1/model.onnx", conv_file(WEIGHTS))
        self.start()
        os.rename(self.folder / "a/1", self.folder / "a/1.away")
        self.wait_for(lambda: "reason" in self.entries("a")[0])
        self.assert_convolves("a", WEIGHTS)

    def test_another_folder_in_place_of_the_repository(self):
        self.write("a/1/model.onnx", conv_file(WEIGHTS))
        self.start()
        away = self.folder.with_name("away")
        self.folder.rename(away)
        self.wait_for(lambda: "the repository cannot be read" in self.server.stderr())
        self.assert_convolves("a", WEIGHTS)
        self.follow("a/1/model.onnx", [3, 1])
        shutil.rmtree(self.folder)
        self.folder.symlink_to(away)
        self.wait_for(lambda: self.is_convolving("a", WEIGHTS))

    def test_what_had_no_room_is_loaded_when_there_is_some(self):
        # Loading one takes .3 to 1.6 MB, because the kernels of some CPUs keep weights as words or
        # floats. So any one of the models has room, and all of them never have.
        names = ["m%d" % i for i in range(8)]
        self.start("--max-model-bytes", "1800K")
        for name in names:
            self.write(name + "/1/model.onnx", conv_file([1] * 300000, w_dims=[300, 1, 1000]))
        found = []  # kept from one answer of the index, because the server soon tries again

        def look():
            found.extend(name for name in names for entry in self.entries(name)
                         if entry["state"] == "UNAVAILABLE"
                         and "--max-model-bytes" in entry.get("reason", ""))
            return found

        self.wait_for(look)
        late = found[0]
        for name in names:
            if name != late:
                shutil.rmtree(self.folder / name)
        self.wait_for(lambda: self.states(late) == ["READY"])

    def test_what_does_not_change_is_loaded_once(self):
        self.write("a/1/model.onnx", conv_file(WEIGHTS))
        self.write("bad/1/model.onnx", b"x")
        self.start("--exit-on-error", "off")
        time.sleep(1)
        log = self.server.stderr()
        self.assertEqual(log.count('msg="model loaded" model="a"'), 1)
        self.assertEqual(log.count('msg="model not loaded" model="bad"'), 1)


if __name__ == "__main__":
    unittest.main()
