"""What the networks of runs say of arrays and files in Python."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

try:
    import numpy as np
except ImportError:
    print("skipped: this Python has no numpy (Debian: python3-numpy)")
    sys.exit(77)

import frugal


class Predictions(unittest.TestCase):
    def test_tables_and_texts_are_predicted_as_the_command_does(self):
        def write(name, text):
            pathlib.Path(folder, name).write_text(text)

        with tempfile.TemporaryDirectory() as folder:
            rows = [(1.7e9 + i, 0.5 * i, 3.0 * i + 1.5) for i in range(400)]
            write("t.csv", "time,x,target\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
            config = {"model": {"name": "mlp", "hidden": [4]}, "data": {"name": "csv", "dir": f"{folder}/t.csv"},
                      "train": {"steps": 3}, "threads": 1}
            frugal.train(config, out=f"{folder}/run", quiet=True)
            model = frugal.load(f"{folder}/run")
            of_file = model.predict(f"{folder}/t.csv")
            self.assertEqual(len(of_file), 400)
            self.assertEqual(model.predict([pathlib.Path(folder) / "t.csv"]), of_file)
            self.assertEqual(model.predict(np.array([row[:2] for row in rows])), of_file)
            said = subprocess.run(
                [os.environ["FRUGAL_PROGRAM"], "predict", f"{folder}/run", f"{folder}/t.csv", "--json"], capture_output=True, text=True, check=True
            ).stdout
            for line, answer in zip(said.splitlines(), of_file):
                np.testing.assert_allclose(json.loads(line)["values"], answer, rtol=1e-5)
            write("c.csv", "kind,x,target\n" + "".join(f"{'ab'[i % 2]},{i},{3 * i + 0.5}\n" for i in range(400)))
            config["data"]["dir"] = f"{folder}/c.csv"
            frugal.train(config, out=f"{folder}/kinds", quiet=True)
            with self.assertRaisesRegex(frugal.Error, r'expected a CSV file, since column "kind" is one of categories'):
                frugal.load(f"{folder}/kinds").predict(np.zeros((2, 3), np.float32))
            lines = [{"text": "good film" if i % 2 else "bad film", "label": i % 2} for i in range(400)]
            write("s.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
            config = {"model": {"name": "bert_tiny"}, "train": {"steps": 1}, "threads": 1,
                      "data": {"name": "jsonl", "dir": f"{folder}/s.jsonl", "max_length": 8}}
            frugal.train(config, out=f"{folder}/texts", quiet=True)
            model = frugal.load(f"{folder}/texts")
            self.assertEqual(len(model.predict(["good film", "bad film"])), 2)
            for name in (f"{folder}/s.jsonl", pathlib.Path(folder) / "s.jsonl"):
                with self.assertRaisesRegex(ValueError, "expected inputs to be text, got the name of a file"):
                    model.predict(name)

    def test_a_table_is_read_in_the_encoding_of_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.csv")
            rows = "".join(f"{('café', 'thé')[i % 2]},{i % 7},{('ja', 'nein')[i % 2]}\n" for i in range(60))
            pathlib.Path(path).write_text("boisson é,x,target\n" + rows, encoding="utf-16")
            config = {"model": {"name": "mlp", "hidden": [8]}, "train": {"epochs": 20}, "threads": 1, "optim": {"name": "adam", "lr": 0.02},
                      "data": {"name": "csv", "dir": path, "encoding": "utf-16", "batch_size": 8}}
            model = frugal.train(config, out=f"{folder}/run", quiet=True).load()
            answers = model.predict(path)
            self.assertGreater(sum(each[0][1] == ("ja", "nein")[i % 2] for i, each in enumerate(answers)), 45)
            said = subprocess.run(
                [os.environ["FRUGAL_PROGRAM"], "predict", f"{folder}/run", path, "--json"], capture_output=True, text=True, check=True
            ).stdout
            self.assertEqual([json.loads(line)["top"][0]["name"] for line in said.splitlines()], [each[0][1] for each in answers])

    def test_pictures_of_bytes_are_expected_from_0_to_1(self):
        draw = np.random.default_rng(0)
        pictures = draw.integers(0, 256, (64, 6, 4, 3), np.uint8)
        classes = (pictures.mean((1, 2, 3)) > 127).astype(np.int64)
        config = {"model": {"name": "mlp", "hidden": [8]}, "train": {"steps": 2}, "threads": 1,
                  "data": {"name": "tensors", "layout": "nhwc", "batch_size": 8}}

        def trained(inputs):
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            config["data"]["dir"] = frugal.save_arrays(f"{folder.name}/data", train=(inputs, classes))
            return frugal.train(config, out=f"{folder.name}/run", quiet=True).load()

        model = trained(pictures)
        numbers = pictures.astype(np.float32)
        self.assertEqual(len(model.predict(numbers / 255)), 64)
        self.assertEqual(model.probabilities(numbers[:0]).shape, (0, 2))
        for wrong, said in ((numbers, r"numbers from 0 to 1, .* got \d+ in sample 0"), (numbers / 127.5 - 1, "from 0 to 1, .* got -0"),
                            ((numbers / 255).transpose(0, 2, 1, 3), r"expected samples \[6, 4, 3\] f32, .* got \[64, 4, 6, 3\]")):
            for call in (model.predict, model.probabilities):
                with self.assertRaisesRegex(frugal.Error, said):
                    call(np.ascontiguousarray(wrong))
        # What has been learned from other numbers takes such numbers.
        self.assertEqual(len(trained(numbers / 64 - 2).predict(numbers / 64 - 2)), 64)


if __name__ == "__main__":
    warnings.simplefilter("error")
    unittest.main()
