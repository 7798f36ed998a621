// Weights in several files with an index, in a folder, and pickles.
#include "data/formats/safetensors_shards.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;

namespace {

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// a and c in one file, b in another.
struct Shards {
  frugal_test::TemporaryFolder folder;
  Shards() {
    write_safetensors(file("model-1.safetensors"), {{"a", Tensor::from<float>({1, 2}, {2})},
                                                    {"c", Tensor::from<float>({5}, {1})}});
    write_safetensors(file("model-2.safetensors"), {{"b", Tensor::from<float>({3}, {1})}});
    put(file(kIndex), R"({"metadata": {"total_size": 16}, "weight_map": {
      "a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}})");
  }
  std::string file(const std::string& name) const { return folder / name; }
};

std::string message_of(const std::string& path) {
  try {
    SafetensorsShards::open(path).read_all();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("shards are read as one file, from their folder or their index") {
  const Shards shards;
  for (const std::string& path : {shards.folder.path(), shards.file(kIndex)}) {
    const SafetensorsShards all = SafetensorsShards::open(path);
    CHECK(all.path() == shards.file(kIndex));
    CHECK(all.names() == std::vector<std::string>{"a", "c", "b"});
    CHECK(all.info("a").shape == Shape{2});
    const auto tensors = all.read_all();
    REQUIRE(tensors.size() == 3);
    CHECK(tensors[0].second.to_vector() == std::vector<double>{1, 2});
    CHECK(tensors[2].second.to_vector() == std::vector<double>{3});
  }
}

TEST_CASE("a folder with one file is that file; with several, or none, it is an error") {
  const Shards shards;
  fs::remove(shards.file(kIndex));
  CHECK(message_of(shards.folder.path()).find("got 2: model-1.safetensors, model-2") !=
        std::string::npos);
  fs::remove(shards.file("model-2.safetensors"));
  CHECK(SafetensorsShards::open(shards.folder.path()).names().size() == 2);
  fs::remove(shards.file("model-1.safetensors"));
  CHECK(message_of(shards.folder.path()).find("got 0") != std::string::npos);
  CHECK(message_of(shards.file("nothing")).find("expected a file at") != std::string::npos);
}

TEST_CASE("of a folder with a whole file beside its index, the file is read") {
  const Shards shards;
  write_safetensors(shards.file("model.safetensors"), {{"whole", Tensor::ones({1})}});
  CHECK(SafetensorsShards::open(shards.folder.path()).names() == std::vector<std::string>{"whole"});
  CHECK(SafetensorsShards::open(shards.file(kIndex)).names().size() == 3);
}

TEST_CASE("indices that do not fit their files are refused") {
  const Shards shards;
  const auto with = [&](const std::string& index) {
    put(shards.file(kIndex), index);
    return message_of(shards.file(kIndex));
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(with("{"), "invalid JSON");
  has(with("[]"), "weight_map");
  has(with(R"({"weight_map": {}})"), "weight_map");
  has(with(R"({"weight_map": {"a": 1}})"), "expected the file of \"a\"");
  has(with(R"({"weight_map": {"a": "../model-1.safetensors"}})"), "expected a file beside");
  has(with(R"({"weight_map": {"a": "/etc/passwd"}})"), "expected a file beside");
  has(with(R"({"weight_map": {"a": ".."}})"), "expected a file beside");
  has(with(R"({"weight_map": {"b": "model-1.safetensors"}})"), "expected \"b\" in");
  has(with(R"({"weight_map": {"a": "model-1.safetensors", "b": "model-3.safetensors"}})"),
      "1 of them is not there: model-3.safetensors");
  put(shards.file("model-2.safetensors"), "cut");
  has(with(R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})"),
      "model-2.safetensors");
}

TEST_CASE("a pickle is refused with the command that converts it") {
  const Shards shards;
  const std::string zip = std::string("PK\x03\x04\x00\x00\x08\x08", 8) + std::string(64, 'x'),
                    old = std::string("\x80\x02\x8a\x0a", 4) + std::string(64, 'x');
  for (const std::string& bytes : {zip, old}) {
    put(shards.file("it's.pth"), bytes);
    const std::string what = message_of(shards.file("it's.pth"));
    CAPTURE(what);
    CHECK(what.find("pickle") != std::string::npos);
    CHECK(what.find("python3 -c") != std::string::npos);
    CHECK(what.find(R"(it'\''s.safetensors')") != std::string::npos);
  }
  for (const char* name : {"model-1.safetensors", "model-2.safetensors", kIndex})
    fs::remove(shards.file(name));
  CHECK(message_of(shards.folder.path()).find("python3 -c") != std::string::npos);
}
