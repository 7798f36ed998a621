#!/usr/bin/env bash
# nlohmann/json 3.11.2: parse() into ordered_json takes time that grows with the square of the number of keys of an
# object, and into json in proportion to it. Both take a key that is given twice, and the last value wins.
# Seen: 10,000 and 40,000 keys: 0.07 and 1.5 s into ordered_json, 0.002 and 0.011 s into json (-O2).
# Frugal: data/formats/json_strict.cpp builds documents in linear time and refuses such keys;
# tests/data/formats/json_strict_test.cpp, "many keys take linear time".
. "$(dirname "$0")/packages.sh"
packages bookworm 'nlohmann-json3-dev=3.11.2*' g++
cat >"$work/bookworm/tmp/keys.cpp" <<'END'
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

template <class J>
double seconds(int keys) {
  std::string text = "{";
  for (int i = 0; i < keys; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  text += "}";
  double best = 1e9;
  for (int time = 0; time < 3; ++time) {
    const clock_t begin = clock();
    const J document = J::parse(text);
    best = std::min(best, double(clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

int main() {
  using nlohmann::json;
  using nlohmann::ordered_json;
  const double plain[] = {seconds<json>(10000), seconds<json>(40000)};
  const double ordered[] = {seconds<ordered_json>(10000), seconds<ordered_json>(40000)};
  std::printf("json %.4f and %.4f s, ordered_json %.4f and %.4f s\n", plain[0], plain[1], ordered[0], ordered[1]);
  const std::string twice = json::parse("{\"a\":1,\"b\":2,\"a\":3}").dump();
  std::printf("a key given twice: %s\n", twice.c_str());
  return (ordered[1] > 10 * ordered[0] && plain[1] < 10 * plain[0] ? 0 : 1) + (twice == "{\"a\":3,\"b\":2}" ? 0 : 2);
}
END
inside bookworm g++ -O2 /tmp/keys.cpp -o /tmp/keys || not_tried "the program does not compile"
status=0
inside bookworm /tmp/keys || status=$?
expect "four times the keys take more than ten times the time, of ordered_json alone" [ $((status & 1)) -eq 0 ]
expect "a key that is given twice is taken" [ $((status & 2)) -eq 0 ]
done_with_it
