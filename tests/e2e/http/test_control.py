"""Calls without tensors. The thread that all other requests wait for reads them, so their bodies
must be small."""
import unittest

from quantd import Reader, ServerTest

BYTES_MAX = 16 << 10
UNLOAD = "/v2/repository/models/none/unload"
INDEX = "/v2/repository/index"


class SmallBodies(ServerTest):
    FLAGS = ("--model-control-mode", "explicit")
    PATHS = (INDEX, UNLOAD, "/v2/logging")

    def test_the_largest_is_read(self):
        body = b'{"ready": true}'.ljust(BYTES_MAX)
        answer = self.server.request("POST", INDEX, body)
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.json())

    def test_one_byte_more_is_refused(self):
        for path in self.PATHS:
            with self.subTest(path):
                self.assert_error(self.server.request("POST", path, b" " * (BYTES_MAX + 1)), 413,
                                  str(BYTES_MAX), str(BYTES_MAX + 1))
        self.assert_alive()

    def test_chunks_are_counted(self):
        def chunks():
            for _ in range(5):
                yield b" " * (BYTES_MAX // 4)

        for path in self.PATHS:
            with self.subTest(path):
                client = self.server.client()
                client.request("POST", path, chunks(), encode_chunked=True,
                               headers={"Transfer-Encoding": "chunked"})
                answer = client.getresponse()
                self.assertEqual(answer.status, 413)
                self.assertIn(b"%d bytes for this call" % BYTES_MAX, answer.read())
                client.close()

    def test_whoever_waits_for_a_word_is_refused_before_it_sends(self):
        for path in self.PATHS:
            with self.subTest(path), self.server.connect() as connection:
                connection.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n"
                                   b"Expect: 100-continue\r\n\r\n" % path.encode())
                reader = Reader(connection)
                self.assert_error(reader.answer(), 413, "104857600")
                reader.file.close()


if __name__ == "__main__":
    unittest.main()
