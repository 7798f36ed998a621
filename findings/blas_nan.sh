#!/usr/bin/env bash
# The four BLAS of Debian 12 (reference 3.11, OpenBLAS 0.3.21, BLIS 0.9, ATLAS 3.10.3), of which NumPy takes the one
# that is installed, treat NaN and infinity in four ways. In a product of a matrix and a vector, BLIS loses a column of
# NaN that meets a 0, or keeps it, by the place of the column. So a NaN of one machine is a number on another one.
# Seen. sscal by 0 of NaN and infinity: NaN and NaN, in OpenBLAS and BLIS 0 and 0. sscal by NaN of 0: 0 in OpenBLAS, NaN
# in the others. isamax of 1, NaN, 3, 2 by reference, OpenBLAS, BLIS, ATLAS: 3, 1, 2, 3; of NaN and then 0 to 39: 1, 41,
# 1, 41. snrm2 of two infinities: NaN in BLIS, infinity in the others. sgemv of one column of NaN among zeros and a
# vector of zeros: NaN; in BLIS (its generic kernels) NaN for each of the first 8 of 9 columns and 0 for the ninth, and
# of 4 columns 0 for each.
# Frugal: no BLAS is called; products are oneDNN's (ops/onednn.cpp).
. "$(dirname "$0")/packages.sh"
packages bookworm 'libblas3=3.11.0*' liblapack3 'libopenblas0-pthread=0.3.21*' 'libblis4-openmp=0.9.0*' \
  'libatlas3-base=3.10.3*' python3-numpy
cat >"$work/bookworm/tmp/run.py" <<'END_OF_PROGRAM'
import ctypes
import sys

import numpy

blas = ctypes.CDLL(sys.argv[1])
blas.snrm2_.restype = ctypes.c_float
nan, infinity = float("nan"), float("inf")


def array(values):
    return numpy.array(values, dtype=numpy.float32, order="F")


def call(name, *arguments):
    kinds = {int: ctypes.c_int, float: ctypes.c_float}
    return getattr(blas, name)(*(
        a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, numpy.ndarray) else
        a if isinstance(a, bytes) else ctypes.byref(kinds[type(a)](a)) for a in arguments))


def scaled(factor, values):
    values = array(values)
    call("sscal_", len(values), factor, values, 1)
    return values.tolist()


def product(columns, place):
    matrix, result = array(numpy.zeros((3, columns))), array([7] * 3)
    matrix[:, place] = nan
    call("sgemv_", b"N", 3, columns, 1.0, matrix, 3, array([0] * columns), 1, 0.0, result, 1)
    return result[0]


print("sscal by 0:", *scaled(0.0, [nan, infinity]))
print("sscal by NaN:", *scaled(nan, [0]))
short, long = array([1, nan, 3, 2]), array([nan, *range(40)])
print("isamax:", call("isamax_", len(short), short, 1), call("isamax_", len(long), long, 1))
print("snrm2:", call("snrm2_", 2, array([infinity] * 2), 1))
for columns in 9, 4:
    print(f"sgemv, {columns}:", *(product(columns, place) for place in range(columns)))
END_OF_PROGRAM
run_with() {  # the folder of the library, and what it says
  local libraries=/usr/lib/x86_64-linux-gnu
  inside bookworm OPENBLAS_CORETYPE=Haswell BLIS_ARCH_TYPE=25 \
    LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" python3 /tmp/run.py "$libraries/$1/libblas.so.3" |
    tee "$work/out"
  while read -r line; do expect "$1, $line" grep -qxF "$line" "$work/out"; done
}
run_with blas <<'END_OF_LINES'
sscal by 0: nan nan
sscal by NaN: nan
isamax: 3 1
snrm2: inf
sgemv, 9: nan nan nan nan nan nan nan nan nan
sgemv, 4: nan nan nan nan
END_OF_LINES
run_with openblas-pthread <<'END_OF_LINES'
sscal by 0: 0.0 0.0
sscal by NaN: 0.0
isamax: 1 41
snrm2: inf
sgemv, 9: nan nan nan nan nan nan nan nan nan
sgemv, 4: nan nan nan nan
END_OF_LINES
run_with blis-openmp <<'END_OF_LINES'
sscal by 0: 0.0 0.0
sscal by NaN: nan
isamax: 2 1
snrm2: nan
sgemv, 9: nan nan nan nan nan nan nan nan 0.0
sgemv, 4: 0.0 0.0 0.0 0.0
END_OF_LINES
run_with atlas <<'END_OF_LINES'
sscal by 0: nan nan
sscal by NaN: nan
isamax: 3 41
snrm2: inf
sgemv, 9: nan nan nan nan nan nan nan nan nan
sgemv, 4: nan nan nan nan
END_OF_LINES
done_with_it
