// Mutants of good files: every reader takes them or says what is wrong, within the memory that a
// file of that size can be worth. FRUGAL_FUZZ_RUNS=N tries N mutants for each reader, and
// FRUGAL_FUZZ_SEED=S draws others.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>

#include "core/error.h"
#include "core/value.h"
#include "tests/fuzz/reader.h"

namespace {

std::atomic<size_t> largest_allocation{0};
std::atomic<long> allocations_left{-1};  // then one fails; below 0: none does

void note(size_t bytes) {
  size_t seen = largest_allocation.load(std::memory_order_relaxed);
  while (bytes > seen && !largest_allocation.compare_exchange_weak(seen, bytes)) {
  }
}

}  // namespace

// The program's own malloc and operator new note the largest block that was asked for. Libraries in
// C call malloc. A sanitizer has a malloc of its own.
#if defined(__GLIBC__) && !defined(FRUGAL_SANITIZED)
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* malloc(size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  note(bytes != 0 && count > SIZE_MAX / bytes ? SIZE_MAX : count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) {
  note(bytes);
  return __libc_realloc(block, bytes);
}
}
#define FRUGAL_TEST_NOTES_MALLOC 1
#endif
void* operator new(size_t bytes) {
  note(bytes);
  if (allocations_left.load(std::memory_order_relaxed) >= 0 && allocations_left-- == 0)
    throw std::bad_alloc();
  if (void* const block = std::malloc(bytes == 0 ? 1 : bytes)) return block;
  throw std::bad_alloc();
}
// std::stable_sort takes its buffer with this form. A sanitizer's own one does not call the one
// above.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }

namespace frugal_test {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// What no file of this length can need: a few tables of fixed size, and 256 bytes for each byte.
size_t most_memory(const std::string& bytes) { return (size_t{1} << 24) + 256 * bytes.size(); }

void try_reader(const Reader& reader) {
  CAPTURE(reader.name);
  const FuzzFolder folder;
  REQUIRE_FALSE(reader.seeds.empty());
  for (size_t i = 0; i < reader.seeds.size(); ++i) {
    CAPTURE(i);
    folder.clear();
    CHECK_NOTHROW(reader.read(folder, reader.seeds[i]));
  }
  const uint64_t runs = from_environment("FRUGAL_FUZZ_RUNS", 200);
  std::mt19937_64 generator(from_environment("FRUGAL_FUZZ_SEED", 1));
  const auto draw = [&](uint64_t below) { return generator() % below; };
  for (uint64_t run = 0; run < runs; ++run) {
    const std::string bytes = mutated(reader.seeds[draw(reader.seeds.size())], reader, draw);
    folder.clear();
    largest_allocation = 0;
    bool other_error = false;
    std::string message;
    try {
      reader.read(folder, bytes);
    } catch (const frugal::Error& error) {
      message = error.what();
      if (message.empty()) other_error = true;
    } catch (const std::exception& error) {
      message = error.what();
      other_error = true;
    }
    if (!other_error && largest_allocation <= most_memory(bytes)) continue;
    const std::string kept = "fuzz-" + reader.name + "-" + std::to_string(run);
    std::FILE* const file = std::fopen(kept.c_str(), "wb");
    if (file != nullptr) {
      std::fwrite(bytes.data(), 1, bytes.size(), file);
      std::fclose(file);
    }
    CAPTURE(kept);
    CAPTURE(message);
    CHECK_FALSE(other_error);
    CHECK(largest_allocation.load() <= most_memory(bytes));
  }
  CHECK(folder.is_kept());
}

}  // namespace

TEST_CASE("a copy of nested values for which there is no memory is an error, and no end") {
  using frugal::by_name::Value;
  const Value text(std::string(64, 'a'));
  const Value value(Value::Object{{"list", Value::List{text, text, Value(1.5)}},
                                  {"object", Value::Object{{std::string(64, 'b'), text}}}});
  bool copied = false;
  for (long left = 0; left < 100 && !copied; ++left) {
    CAPTURE(left);
    bool failed = false;
    allocations_left = left;
    try {
      const Value copy(value);
      Value assigned;
      assigned = copy;
      allocations_left = -1;
      copied = copy == value && assigned == value;
    } catch (const std::bad_alloc&) {
      failed = true;
    }
    CHECK(failed != copied);
  }
  CHECK(copied);
}

#ifdef FRUGAL_TEST_NOTES_MALLOC
TEST_CASE(
    "a chunk of a PNG that claims a gigabyte takes no more memory than such a file can need") {
  for (const Reader& reader : data_readers()) {
    if (reader.name != "png") continue;
    const FuzzFolder folder;
    constexpr size_t kBehindHeader = 8 + 25;  // the signature, and the chunk IHDR
    for (const std::string name :
         {"tEXt", "zTXt", "iTXt", "iCCP", "eXIf", "sPLT", "hIST", "prVt"}) {
      CAPTURE(name);
      std::string bytes = reader.seeds[0];
      bytes.insert(kBehindHeader, std::string("\x3f\xff\xff\xff", 4) + name + std::string(64, 'a'));
      largest_allocation = 0;
      try {
        reader.read(folder, bytes);
      } catch (const frugal::Error& error) {
        CHECK(std::string(error.what()).find("PNG") != std::string::npos);
      }
      CHECK(largest_allocation.load() <= most_memory(bytes));
    }
  }
}
#endif

TEST_CASE("readers of data take mutants of good files, or say what is wrong") {
  for (const Reader& reader : data_readers()) try_reader(reader);
}

TEST_CASE("readers of runs and configurations take mutants, or say what is wrong") {
  for (const Reader& reader : app_readers()) try_reader(reader);
}

}  // namespace frugal_test
