#!/usr/bin/env bash
# nlohmann/json 3.11.2 and 3.11.3: get<int>() gives a number for every number, without an error: a fraction is cut off,
# and what is too large for the type keeps its last bits. A whole number beyond 64 bits is read as a float.
# get<std::string>() of a number is an error, so one expects as much for 2.7 as an int.
# Seen: get<int>() of 2.7 is 2, of 5000000000 it is 705032704; get<uint8_t>() of 300 is 44; get<unsigned>() of -1 is
# 4294967295. 18446744073709551617 (2^64 + 1) is number_float and is written as 1.8446744073709552e+19, and
# get<double>() of 9007199254740993 (2^53 + 1) is 9007199254740992. So a seed or an identifier comes back as another
# one.
# Frugal: each key has a kind and a range, and another number is an error; tests/apps/config/config_test.cpp, "wrong
# types and values out of range say where and what was expected".
. "$(dirname "$0")/packages.sh"
packages bookworm 'nlohmann-json3-dev=3.11.2*' g++
packages trixie 'nlohmann-json3-dev=3.11.3*'
cp -r "$work/trixie/usr/include/nlohmann" "$work/bookworm/tmp/newer"
mkdir "$work/bookworm/tmp/trixie"
mv "$work/bookworm/tmp/newer" "$work/bookworm/tmp/trixie/nlohmann"
cat >"$work/bookworm/tmp/numbers.cpp" <<'END'
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

int main() {
  using nlohmann::json;
  std::printf("2.7 as int: %d\n", json::parse("2.7").get<int>());
  std::printf("5000000000 as int: %d\n", json::parse("5000000000").get<int>());
  std::printf("300 as uint8_t: %d\n", json::parse("300").get<std::uint8_t>());
  std::printf("-1 as unsigned: %u\n", json::parse("-1").get<unsigned>());
  const json large = json::parse("18446744073709551617");
  std::printf("2^64 + 1: %s %s\n", large.is_number_float() ? "float" : "whole", large.dump().c_str());
  std::printf("2^53 + 1 as double: %.0f\n", json::parse("9007199254740993").get<double>());
  try {
    std::printf("1 as text: %s\n", json::parse("1").get<std::string>().c_str());
  } catch (const json::exception&) {
    std::printf("1 as text: error\n");
  }
}
END
for version in 3.11.2 3.11.3; do
  where=/usr/include
  [ "$version" = 3.11.2 ] || where=/tmp/trixie
  inside bookworm g++ -I"$where" /tmp/numbers.cpp -o /tmp/numbers || not_tried "the program does not compile"
  inside bookworm /tmp/numbers | sed "s/^/$version: /" | tee "$work/out"
  for line in '2.7 as int: 2' '5000000000 as int: 705032704' '300 as uint8_t: 44' '-1 as unsigned: 4294967295' \
    '2^64 + 1: float 1.8446744073709552e+19' '2^53 + 1 as double: 9007199254740992' '1 as text: error'; do
    expect "$version: $line" grep -qxF -- "$version: $line" "$work/out"
  done
done
done_with_it
