#!/usr/bin/env python3
"""Writes the ids and texts that SentencePiece gives into the file of small tokenizer.model cases.

usage: tools/piece_cases.py FILE     FILE: tests/data/text/hub/pieces.json

A case is a model and texts. The model lists its pieces as [text, score, type], with the numbers of the file's format,
and the fields that differ from their defaults; the rules for characters are base64. The script writes the file in the
format of Protocol Buffers, and spm_encode and spm_decode (Debian's package sentencepiece) read it.
"""
import base64
import json
import struct
import subprocess
import sys
import tempfile


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def content(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def model_file(model):
    out = b""
    for text, score, kind in model["pieces"]:
        piece = content(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score)
        out += content(1, piece + (number(3, kind) if kind != 1 else b""))
    trainer = number(3, model["type"])
    for field, key in ((24, "space_behind"), (35, "byte_fallback")):
        trainer += number(field, 1) if model.get(key) else b""
    if "unknown_surface" in model:
        trainer += content(44, model["unknown_surface"].encode())
    normalizer = content(2, base64.b64decode(model.get("rules", "")))
    for field, key in ((3, "dummy_prefix"), (4, "remove_spaces"), (5, "escape_spaces")):
        normalizer += number(field, 1 if model.get(key, True) else 0)
    return out + content(2, trainer) + content(3, normalizer)


def run(tool, how, model, lines):
    command = [tool, "--model=" + model, how]
    given = "".join(line + "\n" for line in lines).encode()
    made = subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True)
    return made.stdout.decode().split("\n")[:len(lines)]


def main():
    cases = json.load(open(sys.argv[1], encoding="utf-8"))
    for case in cases:
        with tempfile.NamedTemporaryFile(suffix=".model") as file:
            file.write(model_file(case["model"]))
            file.flush()
            ids = run("spm_encode", "--output_format=id", file.name, case["texts"])
            texts = run("spm_decode", "--input_format=id", file.name, ids)
        case["expected"] = [{"ids": [int(i) for i in line.split()], "text": text} for line, text in zip(ids, texts)]
    lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases]
    open(sys.argv[1], "w", encoding="utf-8").write("[\n" + ",\n".join(lines) + "\n]\n")


main()
