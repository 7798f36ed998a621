// libFuzzer's entry. FRUGAL_FUZZ_READER names the reader; FRUGAL_FUZZ_SEEDS=FOLDER writes its good
// files and its words there, and ends.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "tests/fuzz/reader.h"

namespace frugal_test {
namespace {

const Reader* chosen = nullptr;

void write_seeds(const Reader& reader, const std::string& folder) {
  std::filesystem::create_directories(folder + "/seeds");
  for (size_t i = 0; i < reader.seeds.size(); ++i)
    std::ofstream(folder + "/seeds/" + std::to_string(i), std::ios::binary) << reader.seeds[i];
  std::ofstream words(folder + "/words");
  for (const std::string& word : reader.words) {
    words << '"';
    for (const char c : word) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\x%02x", static_cast<unsigned char>(c));
      words << code;
    }
    words << "\"\n";
  }
}

}  // namespace
}  // namespace frugal_test

// Inputs are small and run on one thread. So short notes of who took a block, and a short queue of
// freed blocks, find what longer ones find, and leave the caches to the readers. ASAN_OPTIONS goes
// before it: malloc_context_size=30 shows whole stacks of what was found.
extern "C" const char* __asan_default_options() {
  return "malloc_context_size=3:quarantine_size_mb=4:thread_local_quarantine_size_kb=64";
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace frugal_test;
#ifdef FRUGAL_FUZZ_APPS
  static const std::vector<Reader> readers = app_readers();
#else
  static const std::vector<Reader> readers = data_readers();
#endif
  const char* const name = std::getenv("FRUGAL_FUZZ_READER");
  if (name == nullptr) {
    for (const Reader& reader : readers) std::printf("%s\n", reader.name.c_str());
    std::exit(0);
  }
  for (const Reader& reader : readers)
    if (reader.name == name) chosen = &reader;
  if (chosen == nullptr) {
    std::fprintf(stderr, "FRUGAL_FUZZ_READER: no reader is named '%s'\n", name);
    std::exit(2);
  }
  if (const char* const folder = std::getenv("FRUGAL_FUZZ_SEEDS")) {
    write_seeds(*chosen, folder);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const frugal_test::FuzzFolder folder;
  folder.clear();
  try {
    frugal_test::chosen->read(folder, std::string(reinterpret_cast<const char*>(data), size));
  } catch (const frugal::Error&) {
  }  // another error ends the program, and libFuzzer keeps its input
  return 0;
}
