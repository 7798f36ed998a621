#include "data/formats/pickle.h"

#include <doctest/doctest.h>

#include "tests/data/files.h"
#include "tests/data/formats/pickles.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

std::string csr_file() { return protocol2(pickled_csr(2, 5, {0, 2, 3}, {0, 4, 1}, {1, 2, 0.5f})); }

template <class Read>
void rejects(const Read& read, const std::string& content, const char* message) {
  const TemporaryFolder folder;
  const std::string path = folder.write("bad", content);
  CHECK_THROWS_WITH_AS(read(path), doctest::Contains(message), Error);
  CHECK_THROWS_WITH_AS(read(path), doctest::Contains(path.c_str()), Error);
}

}  // namespace

TEST_CASE("arrays, sparse matrices and lists of protocol 2 are read") {
  const TemporaryFolder folder;
  const Tensor labels = read_pickle_array(folder.write(
      "y", protocol2(pickled_array("i4", {2, 3}, raw_bytes<int32_t>({1, 2, 3, 4, 5, 6})))));
  CHECK(labels.shape() == Shape{2, 3});
  CHECK(labels.to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(labels.storage()->category() == Category::input);
  const Tensor columns = read_pickle_array(folder.write(
      "f", protocol2(pickled_array("f8", {2, 3}, raw_bytes<double>({1, 2, 3, 4, 5, 6}), true))));
  CHECK(columns.to_vector() == std::vector<double>{1, 3, 5, 2, 4, 6});

  const CsrMatrix csr = read_pickle_csr(folder.write("x", csr_file()));
  CHECK(csr.rows == 2);
  CHECK(csr.cols == 5);
  CHECK(csr.row_ptr == std::vector<int64_t>{0, 2, 3});
  CHECK(csr.col == std::vector<int64_t>{0, 4, 1});
  CHECK(csr.value == std::vector<float>{1, 2, 0.5f});

  const PickleLists lists =
      read_pickle_lists(folder.write("graph", protocol2(pickled_lists({{1, 2}, {}, {0, -7, 3}}))));
  CHECK(lists.keys == std::vector<int64_t>{0, 1, 2});
  CHECK(lists.lists == std::vector<std::vector<int64_t>>{{1, 2}, {}, {0, -7, 3}});
}

// As Python 3 writes {0: [1, 2], 70000: []} in protocols 0, 1 and 2.
TEST_CASE("dictionaries of all three protocols are read") {
  const TemporaryFolder folder;
  const std::string zero("\0", 1);
  for (const std::string& content :
       {std::string("(dp0\nI0\n(lp1\nI1\naI2\nasI70000\n(lp2\ns."),
        cat("}q", zero, "(K", zero, "]q\x01(K\x01K\x02", "eJ", little(70000, 4), "]q\x02u."),
        cat("\x80\x02}q", zero, "(K", zero, "]q\x01(K\x01K\x02", "e\x8a\x03", little(70000, 3),
            "]q\x02u."),
        std::string("(I0\n(L1L\nL2L\nlI70000\n(ld.")}) {
    const PickleLists lists = read_pickle_lists(folder.write("graph", content));
    CHECK(lists.keys == std::vector<int64_t>{0, 70000});
    CHECK(lists.lists == std::vector<std::vector<int64_t>>{{1, 2}, {}});
  }
}

TEST_CASE("arrays whose bytes stand as text are read") {
  const TemporaryFolder folder;
  const std::string head =
      "cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I8\ntcnumpy\n"
      "dtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\n";
  // Protocol 0, as Python 2 writes it: escapes in quotes.
  const Tensor a =
      read_pickle_array(folder.write("a", cat(head, "S'\\x00\\n\\r\\t\\\\\\'a\\xff'\ntb.")));
  CHECK(a.to_vector() == std::vector<double>{0, 10, 13, 9, 92, 39, 97, 255});
  // As Python 3 writes bytes in protocols 0 to 2: a text and its encoding.
  const std::string encode = "c_codecs\nencode\n(";
  const auto encoded = [&](const std::string& text) {
    return cat(head, "c_codecs\nencode\n(", text, "Vlatin1\ntRtb.");
  };
  const Tensor b = read_pickle_array(folder.write("b", encoded("V\\u0000\\u000a\xff"
                                                               "abcde\n")));
  CHECK(b.to_vector() == std::vector<double>{0, 10, 255, 97, 98, 99, 100, 101});
  const Tensor c = read_pickle_array(folder.write("c", encoded(cat("X", little(9, 4),
                                                                   "\xc3\xbf"
                                                                   "abcdefg"))));
  CHECK(c.to_vector() == std::vector<double>{255, 97, 98, 99, 100, 101, 102, 103});
  rejects(read_pickle_array, encoded("V\\u0100\n"), "characters of latin1");
  rejects(read_pickle_array, cat(head, "c_codecs\nencode\n(Va\nVutf-8\ntRtb."), "encode as latin1");
  rejects(read_pickle_array, cat(head, "S'\\q'\ntb."), "a known escape");
  rejects(read_pickle_array, cat(head, "S'\\x0'\ntb."), "a known escape");
  rejects(read_pickle_array, cat(head, "S'abc\ntb."), "a string in quotes");
  rejects(read_pickle_array, cat(head, "V\\u12\ntb."), "four digits");
}

TEST_CASE("nothing but data is accepted") {
  const auto lists = read_pickle_lists;
  rejects(lists, "cos\nsystem\n(S'true'\ntR.", "got \"system\" of \"os\"");
  rejects(lists, "c__builtin__\neval\n(S'1'\ntR.", "got \"eval\"");
  rejects(lists, "cb\xe4\nc\xe4\n.", "got \"c\\xe4\" of \"b\\xe4\"");  // cut UTF-8
  rejects(lists, "\x80\x04}.", "protocol 0 to 2, got 4");
  rejects(lists, "(i__main__\nA\n.", "got 0x69");
  rejects(lists, "P0\n.", "got 0x50");
  rejects(lists, "cnumpy\nndarray\n)R.", "a name that may be called");
  rejects(lists, "ccollections\ndefaultdict\ncnumpy\ndtype\n\x85R.", "a defaultdict of lists");
  rejects(lists, "cnumpy\ndtype\n)R.", "the name of a dtype");
  rejects(lists, "cnumpy\nndarray\n)\x81.", "a new csr_matrix");
  rejects(lists, "}}b.", "to build");
  rejects(lists, "cscipy.sparse.csr\ncsr_matrix\n)\x81Nb.", "a dict of a csr_matrix's attributes");
}

TEST_CASE("pickles that do not hold together are refused") {
  const auto lists = read_pickle_lists;
  rejects(lists, "", "a file that was cut");
  rejects(lists, "}", "at offset 1");
  rejects(lists, ".", "a value on the stack");
  rejects(lists, "}}.", "one value on the stack at STOP");
  rejects(lists, "(}.", "one value on the stack");
  rejects(lists, "}.}", "1 bytes more");
  rejects(lists, "t.", "a mark");
  rejects(lists,
          "}(K\x01"
          "e.",
          "a list to append to");
  rejects(lists, "](K\x01K\x02u.", "a dict to put into");
  rejects(lists, "}(K\x01u.", "a value for each key");
  rejects(lists, "K\x01s.", "a value on the stack");
  rejects(lists, "h\x07.", "memo slot 7");
  rejects(lists, "}r\xff\xff\xff\x7f.", "within reason");
  rejects(lists, "}p-1\n.", "within reason");
  rejects(lists,
          "T\xff\xff\xff\x7f"
          "ab.",
          "as if the file was cut");
  rejects(lists,
          "T\xff\xff\xff\xff"
          "ab.",
          "a length of at least 0");
  rejects(lists,
          "X\xff\xff\xff\xff"
          "ab.",
          "as if the file was cut");
  rejects(lists, "I12a\n.", "an integer of 64 bits");
  rejects(lists, "L99999999999999999999L\n.", "an integer of 64 bits");
  rejects(lists,
          "\x8a\x09"
          "abcdefghi.",
          "an integer of 64 bits");
  rejects(lists, "Fx\n.", "a float");
  rejects(lists, "I1", "got a file that was cut");
  rejects(lists, "K\x05.", "expected the pickle to be a dict");
  rejects(lists, "}K\x01K\x02s.", "expected a value to be a list");
  rejects(lists, "}K\x01]Nas.", "expected an element of a list to be an integer");
  rejects(lists, "}S'a'\n]s.", "expected a key to be an integer");
  // One long list under many keys: small to write, large to copy.
  std::string shared = "](";
  for (int i = 0; i < 1000; ++i) shared += "K\x01";
  shared += "ep0\n0}(";
  for (int i = 0; i < 100; ++i) shared += "K\x01g0\n";
  rejects(lists, shared + "u.", "lists of at most");
  // Nothing recurses, so depth and self-reference do no harm.
  rejects(lists, std::string(1'000'000, ']') + ".", "one value on the stack");
  rejects(lists, "]p0\ng0\na.", "to be a dict");
}

TEST_CASE("arrays and matrices that lie are refused") {
  const auto array = [](const std::string& dtype, const std::vector<int64_t>& shape, size_t bytes) {
    return protocol2(pickled_array(dtype, shape, std::string(bytes, '\1')));
  };
  rejects(read_pickle_array, array("i4", {2, 2}, 15), "expected 16 bytes of data [2, 2] i32");
  rejects(read_pickle_array, array("i4", {0x7fffffff, 0x7fffffff}, 4), "overflows");
  rejects(read_pickle_array, array("i4", {-1}, 4), "extents of at least 0");
  rejects(read_pickle_array, array("O8", {1}, 8), "a dtype of f4");
  rejects(read_pickle_array, protocol2("cnumpy\ndtype\nU\x02i4\x85R(K\x03U\x01>tb"),
          "a little-endian dtype");
  rejects(read_pickle_array,
          protocol2("cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R"),
          "an unfinished one");
  rejects(read_pickle_array, array("b1", {1}, 4), "expected 1 bytes");
  std::string two = array("b1", {1}, 1);
  two[two.size() - 4] = '\2';
  rejects(read_pickle_array, two, "bools of 0 or 1");
  rejects(read_pickle_array, csr_file(), "got a csr_matrix from offset");

  const auto csr = [](const std::vector<int32_t>& row_ptr, const std::vector<int32_t>& col,
                      const std::vector<float>& value) {
    return protocol2(pickled_csr(2, 5, row_ptr, col, value));
  };
  rejects(read_pickle_csr, csr({0, 1}, {0}, {1}), "row_ptr [rows + 1]");
  rejects(read_pickle_csr, csr({0, 1, 2}, {0}, {1}), "row_ptr from 0 to 1");
  rejects(read_pickle_csr, csr({0, 3, 2}, {0, 1}, {1, 1}), "ascending row_ptr");
  rejects(read_pickle_csr, csr({0, -9, 2}, {0, 1}, {1, 1}), "ascending row_ptr");
  rejects(read_pickle_csr, csr({0, 1, 2}, {0, 5}, {1, 1}), "columns in [0, 5)");
  rejects(read_pickle_csr, csr({0, 1, 2}, {0, -1}, {1, 1}), "got -1 in row 1");
  rejects(read_pickle_csr, csr({0, 1, 2}, {0, 3}, {1, NAN}), "at row 1, column 3");
  rejects(read_pickle_csr, csr({0, 1, 2}, {0, 3}, {1}), "as many columns as values");
  rejects(read_pickle_csr, protocol2("cscipy.sparse.csr\ncsr_matrix\n)\x81}b"), "with _shape");
}

TEST_CASE("every prefix and every flipped byte gives an error or an object") {
  const TemporaryFolder folder;
  const std::string good = csr_file();
  for (size_t cut = 0; cut < good.size(); ++cut)
    REQUIRE_THROWS_AS(read_pickle_csr(folder.write("cut", good.substr(0, cut))), Error);
  int refused = 0, read = 0;
  for (size_t at = 0; at < good.size(); ++at)
    for (const unsigned flip : {1u, 4u, 0x80u, 0xffu}) {
      std::string bad = good;
      bad[at] = static_cast<char>(static_cast<uint8_t>(bad[at]) ^ flip);
      try {
        const CsrMatrix csr = read_pickle_csr(folder.write("flip", bad));
        REQUIRE(csr.col.size() <= 3);
        ++read;
      } catch (const Error&) {
        ++refused;
      }
    }
  CHECK(refused > read);
}

TEST_CASE("what one text or tuple costs is paid once, however often it is named") {
  // A tuple of 2^18 values, given to dtype 2^18 times.
  constexpr int kMany = 1 << 18;
  std::string calls = cat("(U\x02i4", std::string(kMany, 'N'),
                          "tq\x01"
                          "0cnumpy\ndtype\nq\x02"
                          "0");
  for (int i = 0; i < kMany; ++i) calls += "h\x02h\x01R0";
  rejects(read_pickle_array, protocol2(cat(calls, "N")), "to be an array");
  // A long text that is encoded again and again.
  const std::string text(1 << 16, 'x');
  std::string encoded = cat("X", little(text.size(), 4), text, "X", little(6, 4),
                            "latin1\x86q\x01"
                            "0c_codecs\nencode\nq\x02"
                            "0");
  for (int i = 0; i < 2; ++i) encoded += "h\x02h\x01R0";
  rejects(read_pickle_array, protocol2(cat(encoded, "N")), "no more bytes than the file has");
}
