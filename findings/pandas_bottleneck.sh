#!/usr/bin/env bash
# pandas 1.5.3 and 2.2.3 compute the deviation of f32 by the package Bottleneck (1.3.5, 1.4.2) where that is installed,
# as Debian's pandas recommends. It adds up in f32, one number after the other, which NumPy and pandas itself do not. So
# whoever divides inputs by their deviation gets others on another machine, by what is installed there. xarray has
# deviations by it, too, and 2025.3 has means.
# Seen, a million numbers around 1000 with the deviation 1, as f32: std() of pandas and xarray is 8.95 with Bottleneck
# and 1.00 without it. Around 100, 10 million numbers: 10.96 and 1.00. Around 0 all have 1.00. mean() of pandas and of
# xarray 2023.1 is right; that of xarray 2025.3 is 1008.9 and 110.8, and 1000.0 and 100.0 without Bottleneck.
# pandas.set_option("compute.use_bottleneck", False) and xarray.set_options(use_bottleneck=False) are the way out.
# Frugal: data/tables/csv_table.cpp (number_of) has mean and deviation in double, as sums around the running mean.
. "$(dirname "$0")/packages.sh"
packages bookworm 'python3-pandas=1.5.3*' 'python3-bottleneck=1.3.5*' 'python3-xarray=2023.01*'
packages trixie 'python3-pandas=2.2.3*' 'python3-bottleneck=1.4.2*' 'python3-xarray=2025.03*'
for suite in bookworm trixie; do
  python_in "$suite" -c '
import numpy
import pandas
import xarray

draws = numpy.random.default_rng(0)
for count, middle in (1000000, 0), (1000000, 1000), (10000000, 100):
    numbers = (middle + draws.standard_normal(count)).astype(numpy.float32)
    column, array = pandas.Series(numbers), xarray.DataArray(numbers)
    for used in True, False:
        pandas.set_option("compute.use_bottleneck", used)
        xarray.set_options(use_bottleneck=used)
        deviations = f"{column.std():.2f} {array.std().item():.2f}"
        means = f"{column.mean():.1f} {array.mean().item():.1f}"
        words = f"{count} around {middle}, {used}: deviations {deviations}, means {means}"
        print(words.replace("-0.0", "0.0"))' | tee "$work/out"
  expect_line() { expect "$suite: $1" grep -qxF "$1" "$work/out"; }
  expect_line '1000000 around 0, True: deviations 1.00 1.00, means 0.0 0.0'
  expect_line '1000000 around 0, False: deviations 1.00 1.00, means 0.0 0.0'
  expect_line '1000000 around 1000, False: deviations 1.00 1.00, means 1000.0 1000.0'
  expect_line '10000000 around 100, False: deviations 1.00 1.00, means 100.0 100.0'
  case $suite in
    bookworm) means=(1000.0 100.0) ;;
    trixie) means=(1008.9 110.8) ;;
  esac
  expect_line "1000000 around 1000, True: deviations 8.95 8.95, means 1000.0 ${means[0]}"
  expect_line "10000000 around 100, True: deviations 10.96 10.96, means 100.0 ${means[1]}"
done
done_with_it
