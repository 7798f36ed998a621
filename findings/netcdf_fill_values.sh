#!/usr/bin/env bash
# xarray 2023.1 and 2025.3, netCDF4 1.6.2 and 1.7.2: the two usual readers of NetCDF in Python differ in what is missing
# in a file, so one of them makes numbers of it. NetCDF fills places that nobody has written with a number of its own,
# 9.97e36 for floats and -32767 for i16, without a word in the file; a file may also say the range of what is valid.
# netCDF4 masks both, as the conventions of NetCDF have it. xarray makes NaN of what _FillValue or missing_value names,
# and takes the rest as numbers: an i16 with a scale of 0.1 is -3276.7 there. h5py gives what is stored. Each manual
# says what its reader looks at, and none what the other one sees. Nothing warns, and all of these numbers are finite.
# Seen, four places, of which two were written: netCDF4 1 2 - -, xarray 1 2 9.96921e+36 9.96921e+36. i16 with a scale of
# 0.1: 0.5 0.6 - - and 0.5 0.6 -3276.7 -3276.7. valid_max=100 and 1 2 3 999: 1 2 3 - and 1 2 3 999. With _FillValue both
# have 1 2 and nothing. The mean of the first one, by which features are scaled, is 1.5 and 4.9846e+36.
# Frugal: NaN in an array is an error, and these numbers are finite, so they pass. docs/guide/own_data.md says it to
# those who make arrays of such files.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-xarray=2023.01.0*' 'python3-netcdf4=1.6.2*' 'python3-h5py=3.7.0*'
packages trixie 'python3-xarray=2025.03.1*' 'python3-netcdf4=1.7.2*' 'python3-h5py=3.13.0*'
for suite in bookworm trixie; do
  python_in "$suite" -W ignore -c '
import h5py
import netCDF4
import numpy
import xarray

with netCDF4.Dataset("/tmp/file.nc", "w") as file:
    file.createDimension("place", 4)
    file.createVariable("floats", "f4", ("place",))[:2] = [1, 2]
    file.createVariable("marked", "f4", ("place",), fill_value=-1)[:2] = [1, 2]
    scaled = file.createVariable("scaled", "i2", ("place",))
    scaled.scale_factor = 0.1
    scaled[:2] = [0.5, 0.6]
    limited = file.createVariable("limited", "f4", ("place",))
    limited.valid_max = numpy.float32(100)
    limited[:] = [1, 2, 3, 999]
by_netcdf, by_xarray = netCDF4.Dataset("/tmp/file.nc"), xarray.open_dataset("/tmp/file.nc")
by_h5py = h5py.File("/tmp/file.nc", "r")
text = lambda values: " ".join("-" if numpy.isnan(value) else "%g" % value for value in values)
for name in "floats", "marked", "scaled", "limited":
    masked = by_netcdf[name][:].astype("f8").filled(numpy.nan)
    others = text(by_xarray[name].values), text(by_h5py[name][:])
    print("%s: netCDF4 %s, xarray %s, h5py %s" % (name, text(masked), *others))
print("mean: %g and %g" % (by_netcdf["floats"][:].mean(), by_xarray["floats"].astype("f8").mean()))
' | tee "$work/out"
  while read -r line; do expect "$suite: $line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
floats: netCDF4 1 2 - -, xarray 1 2 9.96921e+36 9.96921e+36, h5py 1 2 9.96921e+36 9.96921e+36
marked: netCDF4 1 2 - -, xarray 1 2 - -, h5py 1 2 -1 -1
scaled: netCDF4 0.5 0.6 - -, xarray 0.5 0.6 -3276.7 -3276.7, h5py 5 6 -32767 -32767
limited: netCDF4 1 2 3 -, xarray 1 2 3 999, h5py 1 2 3 999
mean: 1.5 and 4.9846e+36
END_OF_LINES
done
done_with_it
