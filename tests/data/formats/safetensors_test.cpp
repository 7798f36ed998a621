#include "data/formats/safetensors.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>

#include "core/rng.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

std::string file(const std::string& header, size_t data_bytes, uint64_t length) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + std::string(data_bytes, '\1');
}

std::string file(const std::string& header, size_t data_bytes) {
  return file(header, data_bytes, header.size());
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

void rejects(const TemporaryFolder& folder, const std::string& content, const char* message) {
  const std::string path = folder.write("bad.safetensors", content);
  CAPTURE(content.substr(0, 200));
  CHECK_THROWS_WITH_AS(SafetensorsFile::open(path), doctest::Contains(message), Error);
  CHECK_THROWS_WITH_AS(SafetensorsFile::open(path), doctest::Contains(path.c_str()), Error);
}

}  // namespace

TEST_CASE("tensors of every dtype come back, in their order, with metadata") {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (DType dtype : {DType::bool_, DType::f64, DType::u8, DType::f32, DType::bf16, DType::f16,
                      DType::i64, DType::i32}) {
    Tensor t = Tensor::zeros({3, 1}, dtype);
    static_cast<uint8_t*>(t.raw())[size_of(dtype)] = 1;
    tensors.emplace_back("z/" + std::string(name_of(dtype)), t);
  }
  tensors.emplace_back("scalar", Tensor::full({}, 42, DType::i64));
  tensors.emplace_back("empty", Tensor::zeros({0, 5}));
  tensors.emplace_back("named \"so\" \xc3\xa9", Tensor::from<float>({-0.0f, 1e-40f}, {2}));
  write_safetensors(path, tensors, {{"format", "pt"}, {"note", "\n"}});

  const SafetensorsFile in = SafetensorsFile::open(path);
  CHECK(in.path() == path);
  CHECK(in.metadata() == Metadata{{"format", "pt"}, {"note", "\n"}});
  REQUIRE(in.names().size() == tensors.size());
  const auto all = in.read_all();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].first;
    const Tensor& expected = tensors[i].second;
    CAPTURE(name);
    CHECK(all[i].first == name);
    const Tensor got = in.read(name);
    CHECK(in.info(name).dtype == expected.dtype());
    CHECK(in.info(name).shape == expected.shape());
    CHECK(in.info(name).begin % static_cast<int64_t>(size_of(expected.dtype())) == 0);
    REQUIRE(got.shape() == expected.shape());
    REQUIRE(got.dtype() == expected.dtype());
    const auto bytes = static_cast<size_t>(expected.nbytes());
    CHECK((bytes == 0 || std::memcmp(got.raw(), expected.raw(), bytes) == 0));
    CHECK((bytes == 0 || std::memcmp(all[i].second.raw(), expected.raw(), bytes) == 0));
  }
  CHECK(in.contains("scalar"));
  CHECK(!in.contains("none"));
  CHECK_THROWS_WITH_AS(in.read("none"), doctest::Contains("expected a tensor \"none\""), Error);
  uint64_t length = 0;
  std::memcpy(&length, content_of(path).data(), 8);
  CHECK(length % 8 == 0);
  write_safetensors(path, {});
  CHECK(SafetensorsFile::open(path).names().empty());
}

TEST_CASE("equal tensors and metadata make equal files") {
  const TemporaryFolder folder;
  const Tensor x = Tensor::full({3}, 1.5);
  write_safetensors(folder / "a", {{"x", x}}, {{"step", "1"}, {"format", "pt"}, {"loss", "2"}});
  write_safetensors(folder / "b", {{"x", x}}, {{"loss", "2"}, {"step", "1"}, {"format", "pt"}});
  const std::string content = content_of(folder / "a");
  CHECK(content == content_of(folder / "b"));
  CHECK(content.find("format") < content.find("loss"));
  CHECK(content.find("loss") < content.find("step"));
}

TEST_CASE("strided tensors are written in their own order") {
  const TemporaryFolder folder;
  std::vector<float> values(2 * 3 * 4 * 5);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor x = Tensor::from(values, {2, 3, 4, 5});
  for (const Tensor& view : {x.permute({0, 3, 1, 2}), x.slice(2, 1, 3), x.select(3, 2),
                             x.transpose(0, 3), x.slice(1, 1, 1)}) {
    write_safetensors(folder / "a", {{"x", view}});
    const Tensor got = SafetensorsFile::open(folder / "a").read("x");
    CHECK(got.shape() == view.shape());
    CHECK(got.to_vector() == view.to_vector());
  }
  const Tensor large = Tensor::full({1 << 10, 700}, 3).transpose(0, 1);  // above one piece
  write_safetensors(folder / "a", {{"x", large}});
  CHECK(SafetensorsFile::open(folder / "a").read("x").item(700 * 1024 - 1) == 3);
}

TEST_CASE("a file written by another tool is read") {
  const TemporaryFolder folder;
  const std::string header = R"({"b":)" + tensor("I32", "[1]", "[8,12]") + R"(,"a":)" +
                             tensor("F32", "[2]", "[0,8]") + R"(,"__metadata__":{"k":"v"}}   )";
  const SafetensorsFile in = SafetensorsFile::open(folder.write("a", file(header, 12)));
  CHECK(in.names() == std::vector<std::string>{"b", "a"});
  CHECK(in.read("b").item() == 0x01010101);
}

TEST_CASE("lying lengths are refused") {
  const TemporaryFolder folder;
  rejects(folder, "", "got 0: the file is truncated");
  rejects(folder, "1234567", "at least 8 bytes");
  rejects(folder, file("{}", 0, 3), "got a length of 3");
  rejects(folder, file("{}", 0, ~uint64_t{0}), "got a length of 18446744073709551615");
  rejects(folder, file("{}", 0, uint64_t{1} << 63), "header of at most");
  rejects(folder, file("", 0), "invalid JSON");
  rejects(folder, file("{}", 1), "expected 0 bytes of data");
  const std::string path = folder.write("large", file("{}", 0, 100'000'001));
  std::filesystem::resize_file(path, 200'000'000);  // sparse
  CHECK_THROWS_WITH_AS(SafetensorsFile::open(path), doctest::Contains("at most 100000000"), Error);
  CHECK_THROWS_WITH_AS(SafetensorsFile::open(folder / "none"), doctest::Contains("none"), Error);
  CHECK_THROWS_AS(SafetensorsFile::open(folder.path()), Error);
}

TEST_CASE("headers that lie or are no header are refused") {
  const TemporaryFolder folder;
  const auto one = [](const std::string& value) { return R"({"x":)" + value + "}"; };
  rejects(folder, file("[]", 0), "expected an object");
  rejects(folder, file("3", 0), "expected an object");
  rejects(folder, file("{", 0), "invalid JSON");
  rejects(folder, file("{\"\xff\":1}", 0), "invalid JSON");
  rejects(folder, file(one("\"\xc3(\""), 0), "invalid JSON");
  rejects(folder, file("{} {}", 0), "invalid JSON");
  rejects(folder, file(std::string(100000, '['), 0), "at most 64 levels of nesting");
  rejects(folder, file(one("[1]"), 0), "expected dtype, shape and data_offsets of \"x\"");
  rejects(folder, file(one(R"({"dtype":"F32","shape":[1]})"), 4), "expected dtype, shape");
  rejects(folder, file(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1})"), 4),
          "expected dtype, shape");
  rejects(folder, file(one(R"({"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]})"), 4),
          "x.dtype: expected each key once");
  const std::string good = tensor("F32", "[1]", "[0,4]");
  rejects(folder, file(R"({"__metadata__":{"a":"b","a":"c"}})", 0),
          "__metadata__.a: expected each");
  rejects(folder, file(std::string("{}\0{}", 5), 0), "a NUL byte");
  // Names are shown without what moves a cursor, and not at length.
  rejects(folder, file(R"({"a\u001b[2J\u000a":)" + tensor("F32", "[2]", "[0,4]") + "}", 4),
          "for \"a\\x1b[2J\\n\"");
  const auto long_name = [&] {
    return SafetensorsFile::open(folder.write(
        "long",
        file("{\"" + std::string(1 << 20, 'x') + "\":" + tensor("F32", "[2]", "[0,4]") + "}", 4)));
  };
  try {
    long_name();
    FAIL_CHECK("was accepted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).size() < 500);
  }
  rejects(folder, file(R"({"x":)" + good + R"(,"x":)" + good + "}", 4),
          "x: expected each key once");
  rejects(folder, file(one(tensor("F8_E4M3", "[4]", "[0,4]")), 4), "expected a dtype");
  rejects(folder, file(one(R"({"dtype":7,"shape":[1],"data_offsets":[0,4]})"), 4), "got 7");
  rejects(folder, file(one(tensor("F32", "1", "[0,4]")), 4), "expected a shape");
  rejects(folder, file(one(tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]")), 4), "at most 8 extents");
  rejects(folder, file(one(tensor("F32", "[-1]", "[0,4]")), 4), "extents of at least 0");
  rejects(folder, file(one(tensor("F32", "[1.0]", "[0,4]")), 4), "extents of at least 0");
  rejects(folder, file(one(tensor("F32", "[\"1\"]", "[0,4]")), 4), "extents of at least 0");
  rejects(folder, file(one(tensor("F32", "[18446744073709551615]", "[0,4]")), 4),
          "extents of at least 0");
  rejects(folder, file(one(tensor("F32", "[4294967296,4294967296]", "[0,0]")), 0), "overflows");
  rejects(folder, file(one(tensor("F64", "[2305843009213693952]", "[0,0]")), 0), "overflows");
  rejects(folder, file(one(tensor("F32", "[1]", "[0,8]")), 8), "expected 4 bytes for \"x\"");
  rejects(folder, file(one(tensor("F32", "[2]", "[0,4]")), 4), "expected 8 bytes for \"x\"");
  rejects(folder, file(one(tensor("F32", "[1]", "[0,4]")), 3), "is the file truncated");
  rejects(folder, file(one(tensor("F32", "[1]", "[4,0]")), 4), "expected data_offsets");
  rejects(folder, file(one(tensor("F32", "[1]", "[-4,0]")), 4), "expected data_offsets");
  rejects(folder, file(one(tensor("F32", "[1]", "[0]")), 4), "expected data_offsets");
  rejects(folder, file(one(tensor("F32", "[1]", "{}")), 4), "expected data_offsets");
  rejects(folder, file(one(tensor("F32", "[1]", "[0,4]")), 5), "expected 4 bytes of data");
  rejects(folder, file(one(tensor("F32", "[1]", "[4,8]")), 8), "leave a gap");
  rejects(folder, file(R"({"x":)" + good + R"(,"y":)" + tensor("F32", "[2]", "[0,8]") + "}", 8),
          "overlap");
  rejects(folder, file(R"({"__metadata__":[]})", 0), "__metadata__");
  rejects(folder, file(R"({"__metadata__":{"a":1}})", 0), "expected a string");
}

TEST_CASE("a mutated file is read or refused, never more") {
  const TemporaryFolder folder;
  write_safetensors(folder / "a",
                    {{"weight", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3})},
                     {"flags", Tensor::full({5}, 1, DType::bool_)},
                     {"steps", Tensor::full({}, 9, DType::i64)}},
                    {{"format", "pt"}});
  const std::string good = content_of(folder / "a");
  int refused = 0;
  constexpr int kTrials = 3000;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    std::string bad = good;
    const auto words = philox({77, trial}, 0);
    const size_t changes = 1 + words[0] % 3;
    for (size_t change = 0; change < changes; ++change) {
      const auto w = philox({77, trial}, 1 + change);
      const size_t at = w[0] % bad.size();
      switch (w[1] % 4) {
        case 0:
          bad[at] = static_cast<char>(w[2] & 255u);
          break;
        case 1:
          bad[at] = "0123456789[]{}\",:-eE."[w[2] % 21];
          break;
        case 2:
          bad.erase(at, 1 + w[2] % 4);
          break;
        default:
          bad.insert(at, 1, "0123456789[]{}\",:-eE."[w[2] % 21]);
      }
    }
    const std::string path = folder.write("mutated", bad);
    try {
      const SafetensorsFile in = SafetensorsFile::open(path);
      for (const auto& [name, t] : in.read_all()) REQUIRE(t.nbytes() <= 64);
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > kTrials / 2);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    const std::string path = folder.write("cut", good.substr(0, cut));
    REQUIRE_THROWS_AS(SafetensorsFile::open(path), Error);
  }
}

TEST_CASE("a header holds its names as they were given, however many") {
  constexpr int kTensors = 3000;
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::string header = R"({"__metadata__":{"a":"\"","b":"2"})";
  for (int i = 0; i < kTensors; ++i) {
    tensors.emplace_back("layer\t" + std::to_string(7919 * i % kTensors), Tensor::zeros({1}));
    header += fmt::format(R"(,"layer\t{}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})",
                          7919 * i % kTensors, 4 * i, 4 * i + 4);
  }
  header += "}";
  write_safetensors(folder / "many", tensors, {{"a", "\""}, {"b", "2"}});
  CHECK((content_of(folder / "many").substr(8, header.size()) == header));
  const SafetensorsFile in = SafetensorsFile::open(folder / "many");
  REQUIRE(in.names().size() == kTensors);
  for (size_t i = 0; i < kTensors; ++i) CHECK(in.names()[i] == tensors[i].first);
}

TEST_CASE("a file cut or damaged behind an open reader is an error") {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  write_safetensors(path, {{"x", Tensor::zeros({100})}});
  const SafetensorsFile in = SafetensorsFile::open(path);
  std::filesystem::resize_file(path, 100);
  CHECK_THROWS_WITH_AS(in.read("x"), doctest::Contains("the file was cut"), Error);
  const std::string flags = R"({"x":)" + tensor("BOOL", "[2]", "[0,2]") + "}";
  std::string bytes = file(flags, 2);
  bytes.back() = 2;
  CHECK_THROWS_WITH_AS(SafetensorsFile::open(folder.write("b", bytes)).read("x"),
                       doctest::Contains("bytes 0 or 1"), Error);
}

TEST_CASE("what cannot be written leaves the old file") {
  const TemporaryFolder folder;
  const std::string path = folder.write("a", "old");
  const Tensor x = Tensor::zeros({1 << 16});
  CHECK_THROWS_WITH_AS(write_safetensors(path, {{"x", x}, {"x", x}}), doctest::Contains("twice"),
                       Error);
  CHECK_THROWS_WITH_AS(write_safetensors(path, {{"__metadata__", x}}),
                       doctest::Contains("another name"), Error);
  CHECK_THROWS_WITH_AS(write_safetensors(path, {{"x", Tensor::zeros({2}, DType::f32, kMeta)}}),
                       doctest::Contains("on cpu"), Error);
  CHECK_THROWS_WITH_AS(write_safetensors(path, {{"x", {}}}), doctest::Contains("undefined"), Error);
  CHECK_THROWS_WITH_AS(write_safetensors(path, {{"\xff", x}}), doctest::Contains("UTF-8"), Error);
  CHECK_THROWS_WITH_AS(write_safetensors(path, {{"x", x}}, {{"k", "\xff"}}),
                       doctest::Contains("UTF-8"), Error);
  CHECK_THROWS_WITH_AS(write_safetensors(folder / "none/a", {{"x", x}}),
                       doctest::Contains("none/a"), Error);
  std::filesystem::create_directory(folder / "taken");
  CHECK_THROWS_WITH_AS(write_safetensors(folder / "taken", {{"x", x}}),
                       doctest::Contains("regular file"), Error);
  CHECK(content_of(path) == "old");
}
