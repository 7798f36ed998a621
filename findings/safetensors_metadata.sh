#!/usr/bin/env bash
# safetensors 0.5.2 (in Debian 13, where it says 0.4.5) writes the entries of its metadata in an order that changes from
# process to process, so equal weights make other files. Hashes of files, by which stores, caches and downloads tell
# whether something has changed, differ then. With one entry, which is what most programs write ({"format": "pt"}),
# files are equal.
# Seen, 8 processes that write one tensor with four entries of metadata: more than one hash. With one entry, one hash.
# Frugal: entries are written in the order of their names; tests/data/formats/safetensors_test.cpp, "equal tensors and
# metadata make equal files".
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-safetensors=0.5.2*' python3-numpy
for ((i = 0; i < 8; ++i)); do
  python_in trixie -c '
import hashlib
import numpy
from safetensors.numpy import save

tensors = {"a": numpy.zeros(2, numpy.float32)}
for name, metadata in ("four", {"format": "pt", "step": "1", "loss": "2", "name": "3"}), ("one", {"format": "pt"}):
    print(name, hashlib.sha256(save(tensors, metadata)).hexdigest()[:16])'
done | sort | uniq -c | tee "$work/out"
expect "four entries make several files" [ "$(grep -c ' four ' "$work/out")" -gt 1 ]
expect "one entry makes one file" [ "$(grep -c ' one ' "$work/out")" = 1 ]
done_with_it
