#!/usr/bin/env bash
# netcdfjs 4.0.0 of the npm registry, which reads NetCDF 3 in JavaScript: a byte below 0 comes as 256 more. The format
# says that a byte has a sign, so the class -1 of "not known" becomes 255. Each byte also comes as a list of one number.
# The padding comes as data: NetCDF fills the bytes of a variable, and of each of its records, up to a multiple of 4,
# and netcdfjs gives the filling as more numbers. So an odd number of i16 is one too long, and 5 bytes are 8. Where
# records of 3 values are joined and cut into rows of 3, each row but the first has numbers of another place. Nothing
# warns. Other types fill multiples of 4 by themselves.
# Seen, written by netCDF4 1.6.2, which reads them back as they were. The bytes 3 -1 0 127 -128 are [3] [255] [0] [127]
# [128] and three more. Of 3 x 3 values of i16 there are 10, the last one -32767. Two records of 3 values of i16 have 4
# values each; joined and cut into rows of 3, the second row begins with the filling and then has 3 and 4, not 3 4 5.
# Values of i32, f32 and f64 are right.
# Frugal: reads no NetCDF. An array of another program has the shape that its file says, or is an error
# (data/formats/npy.cpp); tests/data/formats/npy_test.cpp, "arrays of all dtypes and both orders are read" and "every
# lie of an array file is named".
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  netcdfjs@4.0.0 >/dev/null 2>&1 || not_tried "npm has no netcdfjs@4.0.0"
packages bookworm 'python3-netcdf4=1.6.2*'
python_in bookworm -c '
import netCDF4, numpy

with netCDF4.Dataset("/tmp/values.nc", "w", format="NETCDF3_CLASSIC") as file:
    for name, size in ("five", 5), ("three", 3), ("record", None):
        file.createDimension(name, size)
    for name, dtype, axes, values in (
        ("bytes", "i1", ("five",), [3, -1, 0, 127, -128]),
        ("table", "i2", ("three", "three"), numpy.arange(9).reshape(3, 3)),
        ("records", "i2", ("record", "three"), numpy.arange(6).reshape(2, 3)),
        ("i32", "i4", ("three",), [1, -1, 2]),
        ("f32", "f4", ("record",), [1.5, -1]),
        ("f64", "f8", ("three",), [1.5, -1, 2]),
    ):
        file.createVariable(name, dtype, axes)[:] = values
with netCDF4.Dataset("/tmp/values.nc") as file:
    for name, variable in file.variables.items():
        print("netCDF4", name, str(variable[:].tolist()).replace(" ", ""))' | tee "$work/out"
cat >"$work/js/run.cjs" <<'END_OF_PROGRAM'
const { readFileSync } = require("fs");
const { NetCDFReader } = require("netcdfjs");

const reader = new NetCDFReader(readFileSync(process.argv[2]));
const values = (name) => reader.getDataVariable(name);
const print = (name, what) => console.log(`netcdfjs ${name} ${JSON.stringify(what)}`);
print("bytes", values("bytes").slice(0, 5));
print("number of bytes", values("bytes").length);
for (const name of ["table", "i32", "f32", "f64"]) print(name, values(name));
print("lengths of records", values("records").map((record) => record.length));
print("records without what is too much", values("records").map((record) => record.slice(0, 3)));
print("end of the second row", values("records").flat().slice(4, 6));
END_OF_PROGRAM
node "$work/js/run.cjs" "$work/bookworm/tmp/values.nc" | tee -a "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
netCDF4 bytes [3,-1,0,127,-128]
netCDF4 table [[0,1,2],[3,4,5],[6,7,8]]
netCDF4 records [[0,1,2],[3,4,5]]
netCDF4 i32 [1,-1,2]
netCDF4 f32 [1.5,-1.0]
netCDF4 f64 [1.5,-1.0,2.0]
netcdfjs bytes [[3],[255],[0],[127],[128]]
netcdfjs number of bytes 8
netcdfjs table [0,1,2,3,4,5,6,7,8,-32767]
netcdfjs i32 [1,-1,2]
netcdfjs f32 [1.5,-1]
netcdfjs f64 [1.5,-1,2]
netcdfjs lengths of records [4,4]
netcdfjs records without what is too much [[0,1,2],[3,4,5]]
netcdfjs end of the second row [3,4]
END_OF_LINES
done_with_it
