#!/usr/bin/env bash
# NumPy 1.24.2 and 2.2.4: where savez() is given the names "a" and "a.npy", load() gives the first array for both names,
# without a word. The file is right: its entries are a.npy and a.npy.npy.
# Seen: savez(a=[1], "a.npy"=[2]); files says a and a.npy; both read as [1]. A file of "a.npy" alone gives [2] for it.
# Frugal: data/formats/npy.cpp (NpzFile) takes one .npy off each entry and nothing off a name that is asked for;
# tests/data/formats/npy_test.cpp, "an array may be called a.npy".
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-numpy=1:1.24.2*'
packages trixie 'python3-numpy=1:2.2.4*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import zipfile
import numpy

numpy.savez("/tmp/two.npz", **{"a": numpy.array([1]), "a.npy": numpy.array([2])})
numpy.savez("/tmp/one.npz", **{"a.npy": numpy.array([2])})
two, one = numpy.load("/tmp/two.npz"), numpy.load("/tmp/one.npz")
print("entries", *zipfile.ZipFile("/tmp/two.npz").namelist())
print("files", *two.files)
print("read", two["a"].item(), two["a.npy"].item())
print("alone", *one.files, one["a.npy"].item())' | sed "s/^/$suite: /" | tee "$work/out"
  expect "$suite: the entries are right" grep -qx "$suite: entries a.npy a.npy.npy" "$work/out"
  expect "$suite: both names are listed" grep -qx "$suite: files a a.npy" "$work/out"
  expect "$suite: both give the first array" grep -qx "$suite: read 1 1" "$work/out"
  expect "$suite: alone, the name gives its own" grep -qx "$suite: alone a.npy 2" "$work/out"
done
done_with_it
