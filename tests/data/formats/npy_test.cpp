#include "data/formats/npy.h"

#include <doctest/doctest.h>

#include "data/graph/npz_graph.h"
#include "tests/data/files.h"
#include "tests/data/formats/archive_bytes.h"
#include "tests/data/formats/arrays.h"
#include "tests/data/warnings.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

void rejects_npy(const std::string& content, const char* message) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad.npy", content);
  CHECK_THROWS_WITH_AS(read_npy(path), doctest::Contains(message), Error);
  CHECK_THROWS_WITH_AS(read_npy(path), doctest::Contains(path.c_str()), Error);
}

void rejects_zip(const std::string& content, const char* message) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad.npz", content);
  const auto read = [&] { return NpzFile::open(path).read("a"); };
  CHECK_THROWS_WITH_AS(read(), doctest::Contains(message), Error);
  CHECK_THROWS_WITH_AS(read(), doctest::Contains(path.c_str()), Error);
}

using Entries = std::vector<std::pair<std::string, std::string>>;

Entries small_npz_graph() {
  Entries entries;  // edges 0 -> 1, 1 -> 0, 2 -> 2, 2 -> 0
  add_csr(entries, "adj_", 3, 3, {0, 1, 2, 4}, {1, 0, 2, 0}, {1, 1, 1, 1});
  add_csr(entries, "attr_", 3, 4, {0, 2, 2, 3}, {3, 1, 0}, {1, 3, 2});
  entries.emplace_back("labels.npy", npy("|u1", "(3,)", cat("\1", std::string(1, '\0'), "\2")));
  entries.emplace_back("names.npy", npy("|S3", "(1,)", "abc"));
  return entries;
}

}  // namespace

TEST_CASE("arrays of all dtypes and both orders are read") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& content) {
    return read_npy(folder.write("a", content));
  };
  const std::vector<double> six{1, 2, 3, 4, 5, 6};
  const Tensor f4 = read(npy("<f4", "(2, 3)", raw_bytes<float>({1, 2, 3, 4, 5, 6})));
  CHECK(f4.shape() == Shape{2, 3});
  CHECK(f4.dtype() == DType::f32);
  CHECK(f4.storage()->category() == Category::input);
  CHECK(f4.to_vector() == six);
  CHECK(read(npy("<f8", "(6,)", raw_bytes<double>(six))).to_vector() == six);
  CHECK(read(npy("<i4", "(6L,)", raw_bytes<int32_t>({1, 2, 3, 4, 5, 6}))).to_vector() == six);
  CHECK(read(npy("<i8", "(1, 6)", raw_bytes<int64_t>({1, 2, 3, 4, 5, 6}))).to_vector() == six);
  CHECK(read(npy("|u1", "(6,)", "\1\2\3\4\5\6")).to_vector() == six);
  CHECK(read(npy("|b1", "(2,)", std::string("\1\0", 2))).to_vector() == std::vector<double>{1, 0});
  const Tensor i1 = read(npy("|i1", "(2,)", "\xff\1"));
  CHECK(i1.dtype() == DType::i32);
  CHECK(i1.to_vector() == std::vector<double>{-1, 1});
  CHECK(read(npy("<i8", "()", raw_bytes<int64_t>({7}))).item() == 7);
  CHECK(read(npy("<f4", "(0, 3)", "")).shape() == Shape{0, 3});
  CHECK(read(npy("<i4", "(2, 3)", raw_bytes<int32_t>({1, 4, 2, 5, 3, 6}), "True")).to_vector() ==
        six);
  const Tensor cube = read(npy("|u1", "(2, 2, 2)", "\1\2\3\4\5\6\7\10", "True"));
  CHECK(cube.to_vector() == std::vector<double>{1, 5, 3, 7, 2, 6, 4, 8});
  const std::string header = "{\"shape\": (1,), \"descr\": \"<f4\", \"fortran_order\": False}";
  const std::string second = cat("\x93NUMPY\x02", std::string(1, '\0'), little(header.size(), 4),
                                 header, raw_bytes<float>({5}));
  CHECK(read(second).item() == 5);
  CHECK(to_i64("a", read(npy("|u1", "(2,)", "\1\2"))).to_vector() == std::vector<double>{1, 2});
  CHECK(to_f32(read(npy("<f8", "(1,)", raw_bytes<double>({0.5})))).item() == 0.5);
  CHECK_THROWS_WITH_AS(to_i64("a", f4), doctest::Contains("expected integers"), Error);
}

TEST_CASE("every lie of an array file is named") {
  const std::string data = raw_bytes<float>({1, 2, 3, 4, 5, 6});
  rejects_npy("", "a NumPy array file");
  rejects_npy("\x93NUMPX\x01", "a NumPy array file");
  rejects_npy(cat("\x93NUMPY\x04", std::string(3, '\0')), "version 1 to 3");
  rejects_npy(cat("\x93NUMPY\x02", std::string(3, '\0')), "truncated header");
  rejects_npy(cat("\x93NUMPY\x01", std::string(1, '\0'), "\xff\xff"), "got a length of 65535");
  rejects_npy(npy("<f4", "(2, 3)", data.substr(1)), "expected 24 bytes of data [2, 3] <f4");
  rejects_npy(npy("<f4", "(2, 3)", data + "x"), "got 25");
  rejects_npy(npy(">f4", "(2, 3)", data), "little-endian");
  rejects_npy(npy("|O", "(1,)", data), "a dtype of f4");
  rejects_npy(npy("<f4", "(4611686018427387904, 2)", data), "overflows");
  rejects_npy(npy("<f4", "(0, 4611686018427387904, 4)", ""), "overflows");
  rejects_npy(npy("<f4", "(99999999999999999999,)", data), "expected a header");
  rejects_npy(npy("<f4", "(-1,)", data), "expected a header");
  rejects_npy(npy("<f4", "(1,1,1,1,1,1,1,1,1)", data), "expected a header");
  rejects_npy(npy("<f4", "(6", data), "expected a header");
  rejects_npy(npy("<f4", "6", data), "expected a header");
  rejects_npy(npy("<f4", "(6,)", data, "Maybe"), "expected a header");
  rejects_npy(npy("{'descr': '<f4', 'shape': (6,)}", data), "expected a header");
  rejects_npy(npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}", data),
              "expected a header");
  rejects_npy(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x", data),
              "expected a header");
  rejects_npy(npy("__import__('os')", data), "expected a header");
  rejects_npy(npy("|b1", "(1,)", "\2"), "bools of 0 or 1");
}

TEST_CASE("archives are read stored, deflated and with 64-bit sizes") {
  const TemporaryFolder folder;
  const Entries entries{{"a.npy", npy_of<int32_t>("<i4", {3, 1})},
                        {"b.npy", npy("<f4", "(0,)", "")}};
  for (const bool deflate : {false, true})
    for (const bool wide : {false, true}) {
      const NpzFile file = NpzFile::open(folder.write("a", zip(entries, deflate, wide)));
      CHECK(file.names() == std::vector<std::string>{"a", "b"});
      CHECK(file.contains("a"));
      CHECK(!file.contains("c"));
      CHECK(file.read("a").to_vector() == std::vector<double>{3, 1});
      CHECK(file.read("b").numel() == 0);
    }
  const std::string commented = zip(entries);
  const NpzFile file = NpzFile::open(
      folder.write("c", cat(commented.substr(0, commented.size() - 2), little(3, 2), "abc")));
  CHECK(file.read("a").item() == 3);
}

TEST_CASE("an array may be called a.npy") {
  const TemporaryFolder folder;
  const NpzFile file = NpzFile::open(folder.write(
      "a",
      zip({{"a.npy", npy_of<int32_t>("<i4", {1})}, {"a.npy.npy", npy_of<int32_t>("<i4", {2})}})));
  CHECK(file.names() == std::vector<std::string>{"a", "a.npy"});
  CHECK(file.read("a").item() == 1);
  CHECK(file.read("a.npy").item() == 2);
}

TEST_CASE("names of arrays beyond ASCII, in the locale that a program has at its start") {
  const TemporaryFolder folder;
  const std::string array = npy_of<int32_t>("<i4", {3, 1});
  const NpzFile file = NpzFile::open(
      folder.write("a", frugal_test::stored_zip({{"größe.npy", array}, {"länge.npy", array}})));
  CHECK(file.names() == std::vector<std::string>{"größe", "länge"});
  CHECK(file.read("länge").to_vector() == std::vector<double>{3, 1});
}

TEST_CASE("every lie of an archive is named") {
  const std::string array = npy_of<int32_t>("<i4", {3, 1});
  const std::string good = zip({{"a.npy", array}}), packed = zip({{"a.npy", array}}, true);
  rejects_zip("", "expected a zip archive");
  rejects_zip(array, "expected a zip archive");
  rejects_zip(zip({{"b.npy", array}}), "an array \"a\"");
  rejects_zip(zip({{"a.npy", array}, {"a.npy", array}}), "\"a.npy\" twice");
  // The byte at `at` of the entry's own header, which lies at the file's start, and at `again` of
  // the directory's; -1: only one of them.
  const auto broken = [](std::string content, int at, int again, char value) {
    if (at >= 0) content[static_cast<size_t>(at)] = value;
    if (again >= 0) content[content.size() - 22 - 46 - 5 + static_cast<size_t>(again)] = value;
    return content;
  };
  const int data = 30 + 5, last = data + static_cast<int>(array.size()) - 1;
  rejects_zip(broken(good, last, -1, 9), "corrupt data of \"a.npy\"");
  rejects_zip(broken(packed, data, -1, '\xff'), "corrupt data of \"a.npy\"");
  rejects_zip(broken(good, 0, -1, 9), "got a broken one");
  rejects_zip(broken(good, -1, 0, 9), "expected an array \"a\"");
  rejects_zip(broken(good, 6, 8, 1), "the encrypted \"a.npy\"");
  rejects_zip(broken(good, 8, 10, 12), "corrupt data of \"a.npy\"");  // bzip2
  rejects_zip(broken(good, 8, 10, 99), "corrupt data of \"a.npy\"");  // no method
  const auto end = [&](size_t from_end, char value) {
    std::string content = good;
    content[content.size() - from_end] = value;
    return content;
  };
  rejects_zip(end(6, 127), "expected a zip archive");  // a directory outside of the file
  rejects_zip(end(12, 99), "expected a zip archive");  // a directory that is larger than the file
  rejects_zip(end(18, 1), "expected a zip archive");   // an archive in several parts
  // Sizes that differ between the two headers; that are less, more and far more than there is.
  const auto size = static_cast<char>(array.size());
  for (const std::string& content : {good, packed})
    rejects_zip(broken(content, -1, 24, static_cast<char>(size - 1)), "got a broken one");
  rejects_zip(broken(packed, 22, 24, static_cast<char>(size - 1)), "corrupt data");
  rejects_zip(broken(packed, 22, 24, static_cast<char>(size + 1)), "corrupt data");
  for (const std::string& content : {good, packed})
    rejects_zip(broken(content, 25, 27, 64), "impossible size of \"a.npy\"");
}

// A broken checksum tells who expands an entry before looking at what it is.
TEST_CASE("an archive that expands to what nobody wants is refused by its headers") {
  const auto spoilt = [](Entries entries, const std::string& name) {
    std::string content = zip(entries, true);
    content[content.rfind("PK\3\4", content.find(name)) + 14] ^= 1;
    content[content.rfind("PK\1\2", content.rfind(name)) + 16] ^= 1;
    return content;
  };
  rejects_zip(spoilt({{"a.npy", std::string(1 << 20, '\0')}}, "a.npy"), "a NumPy array file");
  const TemporaryFolder folder;
  const auto open = [&](const std::string& name, const std::string& array) {
    Entries entries = small_npz_graph();
    for (auto& [known, content] : entries)
      if (known == name) content = array;
    open_npz_graph(folder.write("g.npz", spoilt(entries, name)), {});
  };
  const std::string many = npy_of("<f4", std::vector<float>(1 << 20));
  CHECK_THROWS_WITH_AS(open("labels.npy", many), doctest::Contains("labels [V]"), Error);
  CHECK_THROWS_WITH_AS(open("adj_shape.npy", many), doctest::Contains("2 extents"), Error);
  for (const char* name : {"adj_data.npy", "attr_indices.npy", "attr_indptr.npy"})
    CHECK_THROWS_WITH_AS(open(name, many), doctest::Contains("expected row_ptr [rows + 1]"), Error);
}

TEST_CASE("dense features of next to nothing but zeros are refused") {
  const TemporaryFolder folder;
  const auto open = [&](int64_t columns, bool sparse) {
    Entries entries;
    add_csr(entries, "adj_", 3, 3, {0, 1, 2, 2}, {1, 0}, {1, 1});
    add_csr(entries, "attr_", 3, columns, {0, 2, 2, 3}, {3, 1, 0}, {1, 3, 2});
    entries.emplace_back("labels.npy", npy_of<int32_t>("<i4", {0, 1, 2}));
    return open_npz_graph(folder.write("g.npz", zip(entries)), {.sparse = sparse}).features;
  };
  constexpr int64_t kWide = int64_t{1} << 40;
  CHECK(open(kWide, true) == kWide);
  CHECK_THROWS_WITH_AS(open(kWide, false), doctest::Contains("a sparse matrix"), Error);
  CHECK(open(1000, false) == 1000);
}

TEST_CASE("every prefix and every flipped byte of an archive gives an error or its arrays") {
  const TemporaryFolder folder;
  for (const bool wide : {false, true}) {
    const std::string good = zip({{"a.npy", npy_of<int32_t>("<i4", {3, 1})}}, !wide, wide);
    const auto read = [&](const std::string& content) {
      const NpzFile file = NpzFile::open(folder.write("mutated", content));
      return file.read("a");
    };
    for (size_t cut = 0; cut < good.size(); ++cut)
      REQUIRE_THROWS_AS(read(good.substr(0, cut)), Error);
    for (size_t at = 0; at < good.size(); ++at)
      for (const unsigned flip : {1u, 4u, 0x80u, 0xffu}) {
        std::string bad = good;
        bad[at] = static_cast<char>(static_cast<uint8_t>(bad[at]) ^ flip);
        try {
          // Only times, versions and the like may change without notice.
          const std::vector<double> values = read(bad).to_vector();
          REQUIRE(values == std::vector<double>{3, 1});
        } catch (const Error&) {
        }
      }
  }
}

TEST_CASE("a graph of sparse matrices in one archive") {
  const TemporaryFolder folder;
  const GraphData graph = open_npz_graph(folder.write("g", zip(small_npz_graph())), {false, false});
  CHECK(graph.nodes == 3);
  CHECK(graph.classes == 3);
  CHECK(graph.edge_index.to_vector() == std::vector<double>{0, 0, 1, 2, 2, 1, 2, 0, 0, 2});
  CHECK(graph.x.to_vector() == std::vector<double>{0, 3, 0, 1, 0, 0, 0, 0, 2, 0, 0, 0});
  CHECK(graph.y.to_vector() == std::vector<double>{1, 0, 2});
  CHECK(!graph.train_mask.defined());
  const GraphData sparse =
      open_npz_graph(folder.write("g", zip(small_npz_graph(), true)), {true, true});
  CHECK(sparse.x_col.to_vector() == std::vector<double>{1, 3, 0});  // sorted
  CHECK(sparse.x_value.to_vector() == std::vector<double>{0.75, 0.25, 1});

  const auto rejects_graph = [&](size_t which, const std::string& content, const char* message) {
    Entries entries = small_npz_graph();
    entries[which].second = content;
    CHECK_THROWS_WITH_AS(open_npz_graph(folder.write("bad", zip(entries))),
                         doctest::Contains(message), Error);
  };
  rejects_graph(3, npy_of<int64_t>("<i8", {3, 4}), "an adjacency [V, V]");
  rejects_graph(3, npy_of<int64_t>("<i8", {3}), "2 extents");
  rejects_graph(1, npy_of<int32_t>("<i4", {1, 0, 3, 0}), "columns in [0, 3)");
  rejects_graph(1, npy_of<float>("<f4", {1, 0, 2, 0}), "expected integers");
  rejects_graph(4, npy_of<float>("<f4", {1, INFINITY, 2}), "got inf at row 0, column 1");
  rejects_graph(8, npy_of<int32_t>("<i4", {0, 1}), "labels [V]");
  rejects_graph(8, npy_of<int32_t>("<i4", {0, -1, 1}), "got -1 at node 1");
}

TEST_CASE("weights and zeros of a graph's matrix are told of") {
  const TemporaryFolder folder;
  const Warnings warnings;
  // The edges are 0 -> 1, 1 -> 0, 2 -> 2 and 2 -> 0.
  const auto edges = [&](const std::string& values) {
    Entries entries = small_npz_graph();
    entries[0].second = values;
    return open_npz_graph(folder.write("g.npz", zip(entries))).edge_index.to_vector();
  };
  const std::vector<double> all{0, 0, 1, 2, 2, 1, 2, 0, 0, 2};
  CHECK(edges(npy("|b1", "(4,)", "\1\1\1\1")) == all);
  CHECK(warnings.text().empty());
  CHECK(edges(npy_of<float>("<f4", {1, 1, 0, 1})) == std::vector<double>{0, 0, 1, 2, 1, 2, 0, 0});
  CHECK(warnings.has("adj_data: 1 of 4 values is 0, which is no edge"));
  CHECK(!warnings.has("weights"));
  CHECK(edges(npy_of<double>("<f8", {1, 0.5, -1, 1e-60})) == all);
  CHECK(
      warnings.has("adj_data: 3 of 4 values are not 1, the first in row 1, column 0; edges have no "
                   "weights here"));
  CHECK_THROWS_WITH_AS(edges(npy_of<float>("<f4", {0, 0, 0, 0})),
                       doctest::Contains("got 4 values of 0"), Error);
  CHECK_THROWS_WITH_AS(edges(npy_of<float>("<f4", {1, NAN, 1, 1})),
                       doctest::Contains("got nan at row 1, column 0"), Error);
}

TEST_CASE("a class without a node is told of") {
  const TemporaryFolder folder;
  const Warnings warnings;
  Entries entries = small_npz_graph();
  entries[8].second = npy_of<int32_t>("<i4", {1, 3, 2});
  CHECK(open_npz_graph(folder.write("g.npz", zip(entries))).classes == 4);
  CHECK(
      warnings.has("no node has the label 0, and the highest one is 3; the network gets 4 classes, "
                   "of which 1 has no node"));
}

TEST_CASE("rows of features keep their signs when they are scaled") {
  const TemporaryFolder folder;
  Entries entries = small_npz_graph();
  entries[4].second = npy_of<float>("<f4", {1, -3, -2});  // row 0: columns 3, 1; row 2: column 0
  const std::vector<double> scaled{0, -0.75, 0, 0.25, 0, 0, 0, 0, -1, 0, 0, 0};
  CHECK(open_npz_graph(folder.write("g.npz", zip(entries))).x.to_vector() == scaled);
  GraphData dense;
  dense.nodes = 1;
  set_features("a test", dense, Tensor::from(std::vector<float>{1, -3}, {1, 2}), {});
  CHECK(dense.x.to_vector() == std::vector<double>{0.25, -0.75});
}

TEST_CASE("cora.npz in FRUGAL_DATA") {
  const char* root = std::getenv("FRUGAL_DATA");
  const std::string path = std::string(root == nullptr ? "" : root) + "/graphs/npz/cora.npz";
  if (root == nullptr || !std::filesystem::exists(path)) {
    MESSAGE("skipped: no graphs/npz/cora.npz in $FRUGAL_DATA");
    return;
  }
  const GraphData graph = open_npz_graph(path, {false, true});
  CHECK(graph.nodes == 2708);
  CHECK(graph.edges() == 2 * 5278);
  CHECK(graph.features == 1433);
  CHECK(graph.classes == 7);
  CHECK(graph.x_value.numel() == 49216);
  CHECK_THROWS_WITH_AS(NpzFile::open(path).read("node_names"), doctest::Contains("a dtype of"),
                       Error);
}
