#!/usr/bin/env bash
# nlohmann/json 3.11.2 and 3.11.3: the destructor of a list or an object takes memory. A destructor may not throw, so a
# program that has none left ends there by std::terminate(), whatever it catches.
# Seen: calls of operator new while a document goes: 1 for [1,2,3], {"a":{"b":[1]}} and an array of 10,000 lists, which
# get one stack together; 0 for [] and "text".
# Frugal: apps/cli/command_line.cpp (end_without_memory) ends with the message and the status of other errors, and a
# training goes on from its last checkpoint; tests/campaign/campaign.py lets operator new fail at every place.
. "$(dirname "$0")/packages.sh"
for suite in bookworm trixie; do
  version=3.11.2
  [ "$suite" = bookworm ] || version=3.11.3
  packages "$suite" "nlohmann-json3-dev=$version*" g++
  cat >"$work/$suite/tmp/destroy.cpp" <<'END'
#include <cstdio>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

static long calls = 0;
void* operator new(size_t bytes) {
  ++calls;
  if (void* block = std::malloc(bytes)) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

static long taken_by_destructor(const std::string& text) {
  auto* document = new nlohmann::json(nlohmann::json::parse(text));
  const long before = calls;
  delete document;
  return calls - before;
}

int main() {
  std::string many = "[";
  for (int i = 0; i < 10000; ++i) many += i ? ",[1]" : "[1]";
  std::printf("%ld %ld %ld %ld ", taken_by_destructor("[1,2,3]"), taken_by_destructor("{\"a\":{\"b\":[1]}}"),
              taken_by_destructor("[]"), taken_by_destructor("\"text\""));
  std::printf("%ld\n", taken_by_destructor(many + "]"));
}
END
  inside "$suite" g++ -O2 /tmp/destroy.cpp -o /tmp/destroy || not_tried "the program does not compile"
  read -r list object empty text many < <(inside "$suite" /tmp/destroy)
  echo "$suite: [1,2,3]: $list, {\"a\":{\"b\":[1]}}: $object, []: $empty, \"text\": $text, 10,000 lists: $many"
  expect "a list takes memory when it goes" [ "$list" -ge 1 ]
  expect "an object takes memory when it goes" [ "$object" -ge 1 ]
  expect "an empty list and a text take none" [ "$empty$text" = 00 ]
  expect "many lists share it" [ "$many" = 1 ]
done
done_with_it
