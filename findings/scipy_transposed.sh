#!/usr/bin/env bash
# SciPy 1.10.1 and 1.15.3: the transpose of a sparse matrix by rows (CSR) is one by columns (CSC), and so are sums and
# maxima that begin with it: A.T + A, A.T.maximum(A). save_npz() writes both kinds in arrays of the same names, so a
# program that reads indptr, indices and data gets the transpose of what was saved. Only the array "format" tells.
# Seen, for A with the elements (0, 1) and (0, 2) of 3 x 3: A + A.T is csr, A.T + A csc; read as rows, the arrays of A.T
# have the elements (0, 1) and (0, 2), which are those of A.
# Frugal: data/graph/npz_graph.cpp (read_npz_csr) refuses other formats; tests/data/graph/graphsaint_test.cpp.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-scipy=1.10.1*'
packages trixie 'python3-scipy=1.15.3*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import numpy
import scipy.sparse

a = scipy.sparse.csr_matrix(([1.0, 2.0], ([0, 0], [1, 2])), shape=(3, 3))
print("formats", (a + a.T).format, (a.T + a).format, a.maximum(a.T).format, a.T.maximum(a).format)
scipy.sparse.save_npz("/tmp/a.npz", a)
scipy.sparse.save_npz("/tmp/t.npz", a.T)
one, other = numpy.load("/tmp/a.npz"), numpy.load("/tmp/t.npz")
print("names", "equal" if one.files == other.files else "other")
found = scipy.sparse.csr_matrix((other["data"], other["indices"], other["indptr"]), shape=tuple(other["shape"]))
print("read", "A" if (found != a).nnz == 0 else "A.T" if (found != a.T).nnz == 0 else "neither")
print("format", other["format"].item().decode())' | sed "s/^/$suite: /" | tee "$work/out"
  expect "$suite: what begins with A.T is by columns" grep -qx "$suite: formats csr csc csr csc" "$work/out"
  expect "$suite: the arrays have the same names" grep -qx "$suite: names equal" "$work/out"
  expect "$suite: the file of A.T, read by rows, gives A" grep -qx "$suite: read A" "$work/out"
  expect "$suite: its format is csc" grep -qx "$suite: format csc" "$work/out"
done
done_with_it
