#include "data/formats/pickle.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/npy.h"

namespace frugal::data {
namespace {

// Values refer to each other by index, so a pickle may contain itself. Texts are views of the
// file's bytes, so all values have the same size and memory grows at most with the file.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    string,   // bytes, python 2's str
    unicode,  // UTF-8
    list,
    tuple,
    dict,  // items: key, value, key, value, ...
    global,
    dtype,  // text: "f4"
    array,  // items: shape (a tuple), dtype, data (a string); number: 1 in Fortran order
    csr,    // items: its attributes (a dict)
  };
  Kind kind = Kind::none;
  bool built = false;  // dtype, array, csr: BUILD gave its state
  int64_t number = 0;  // integer, boolean: its value; global: which one
  double real = 0;
  int64_t offset = 0;  // where the opcode that made the value stands
  std::string_view text;
  std::vector<uint32_t> items;
};

using Kind = PickleValue::Kind;

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {
      "None",    "a bool", "an integer", "a float", "a string", "a unicode string", "a list",
      "a tuple", "a dict", "a name",     "a dtype", "an array", "a csr_matrix"};
  return kNames[static_cast<size_t>(kind)];
}

// The largest graphs of this kind have some hundred thousand values.
constexpr size_t kMaxValues = size_t{1} << 22;

// The names that a pickle may use, with all modules that have held them.
enum Global : int64_t {
  kCsr,
  kReconstruct,
  kNdarray,
  kDtype,
  kDefaultDict,
  kList,
  kDict,
  kObject,
  kNewObject,
  kEncode
};
struct Allowed {
  std::string_view module, name;
  Global global;
};
constexpr Allowed kAllowed[] = {
    {"scipy.sparse.csr", "csr_matrix", kCsr},
    {"scipy.sparse._csr", "csr_matrix", kCsr},
    {"numpy.core.multiarray", "_reconstruct", kReconstruct},
    {"numpy._core.multiarray", "_reconstruct", kReconstruct},
    {"numpy", "ndarray", kNdarray},
    {"numpy", "dtype", kDtype},
    {"collections", "defaultdict", kDefaultDict},
    {"__builtin__", "list", kList},
    {"builtins", "list", kList},
    {"__builtin__", "dict", kDict},
    {"builtins", "dict", kDict},
    {"__builtin__", "object", kObject},
    {"builtins", "object", kObject},
    {"copy_reg", "_reconstructor", kNewObject},
    {"copyreg", "_reconstructor", kNewObject},
    {"_codecs", "encode", kEncode},
};

// Runs a pickle, which is a program for a stack machine. The result is plain values.
class PickleMachine {
 public:
  // Runs the whole pickle. `bytes` must outlive the machine. Errors: see pickle.h.
  PickleMachine(const std::string& path, std::string_view bytes);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& at(uint32_t index) const { return values_[index]; }
  const std::string& path() const { return path_; }

  // The value under a dictionary's key; nullptr if there is none.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;
  // Returns `value` if it is of that kind (and built). Otherwise: an error that names `what`.
  const PickleValue& expect(const PickleValue& value, PickleValue::Kind kind,
                            const char* what) const;

 private:
  void run();
  void step(uint8_t opcode);
  // The operands of opcodes.
  uint64_t little(size_t bytes);
  std::string_view take(uint64_t bytes);
  std::string_view line();
  int64_t integer_of(std::string_view text);
  // Texts of protocol 0, and bytes that are written as text.
  std::string_view unescape(std::string_view text);
  std::string_view unescape_unicode(std::string_view text);
  // The stack.
  uint32_t make(PickleValue::Kind kind, int64_t number = 0);
  uint32_t make_text(PickleValue::Kind kind, std::string_view text);
  void push(uint32_t value) { stack_.push_back(value); }
  uint32_t pop();
  PickleValue& top(PickleValue::Kind kind, const char* what);
  std::vector<uint32_t> pop_to_mark();
  void tuple(size_t count);
  void extend_dict(PickleValue& dict, const std::vector<uint32_t>& items);
  void remember(uint64_t slot);
  void recall(uint64_t slot);
  // Objects.
  void global(std::string_view module, std::string_view name);
  void reduce();
  void new_object();
  void build();
  void build_array(PickleValue& array, const PickleValue& state);
  std::string_view latin1(const PickleValue& unicode);
  [[noreturn]] void fail(const std::string& expected) const;

  std::string path_;
  std::string_view bytes_;
  size_t at_ = 0, opcode_at_ = 0;
  std::vector<PickleValue> values_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::vector<std::pair<bool, uint32_t>> memo_;
  std::deque<std::string> texts_;  // texts that the file holds in another form
  size_t encoded_ = 0;             // bytes of all texts that went through latin1()
  uint32_t root_ = 0;
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void append_utf8(std::string& out, uint32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xc0u | point >> 6);
    out += static_cast<char>(0x80u | (point & 0x3fu));
  } else {
    out += static_cast<char>(0xe0u | point >> 12);
    out += static_cast<char>(0x80u | (point >> 6 & 0x3fu));
    out += static_cast<char>(0x80u | (point & 0x3fu));
  }
}

PickleMachine::PickleMachine(const std::string& path, std::string_view bytes)
    : path_(path), bytes_(bytes) {
  run();
}

void PickleMachine::fail(const std::string& expected) const {
  throw Error(fmt::format("[pickle] expected {} in {} at offset {}", expected, path_, opcode_at_));
}

const PickleValue* PickleMachine::find(const PickleValue& dict, std::string_view key) const {
  const PickleValue* found = nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleValue& k = at(dict.items[i]);
    if ((k.kind == Kind::string || k.kind == Kind::unicode) && k.text == key)
      found = &at(dict.items[i + 1]);
  }
  return found;
}

const PickleValue& PickleMachine::expect(const PickleValue& value, Kind kind,
                                         const char* what) const {
  const bool object = kind == Kind::dtype || kind == Kind::array || kind == Kind::csr;
  FRUGAL_CHECK(value.kind == kind && (value.built || !object),
               "[pickle] expected {} to be {} in {}, got {}{} from offset {}", what, name_of(kind),
               path_, value.kind == kind ? "an unfinished one, " : "", name_of(value.kind),
               value.offset);
  return value;
}

std::string_view PickleMachine::take(uint64_t bytes) {
  if (bytes > bytes_.size() - at_)
    fail(fmt::format("{} further bytes, got {}, as if the file was cut,", bytes,
                     bytes_.size() - at_));
  const std::string_view text = bytes_.substr(at_, static_cast<size_t>(bytes));
  at_ += static_cast<size_t>(bytes);
  return text;
}

uint64_t PickleMachine::little(size_t bytes) {
  const std::string_view text = take(bytes);
  uint64_t value = 0;
  for (size_t i = bytes; i > 0; --i) value = value << 8 | static_cast<uint8_t>(text[i - 1]);
  return value;
}

std::string_view PickleMachine::line() {
  const size_t end = bytes_.find('\n', at_);
  if (end == std::string_view::npos) fail("a line, got a file that was cut,");
  const std::string_view text = bytes_.substr(at_, end - at_);
  at_ = end + 1;
  return text;
}

int64_t PickleMachine::integer_of(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    fail("an integer of 64 bits");
  return value;
}

uint32_t PickleMachine::make(Kind kind, int64_t number) {
  if (values_.size() == kMaxValues) fail(fmt::format("at most {} values", kMaxValues));
  PickleValue& value = values_.emplace_back();
  value.kind = kind;
  value.number = number;
  value.offset = static_cast<int64_t>(opcode_at_);
  return static_cast<uint32_t>(values_.size() - 1);
}

uint32_t PickleMachine::make_text(Kind kind, std::string_view text) {
  const uint32_t value = make(kind);
  values_[value].text = text;
  return value;
}

// Values below the last mark belong to the object that is being built there.
uint32_t PickleMachine::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("a value on the stack");
  const uint32_t value = stack_.back();
  stack_.pop_back();
  return value;
}

PickleValue& PickleMachine::top(Kind kind, const char* what) {
  if (stack_.empty() || values_[stack_.back()].kind != kind) fail(what);
  return values_[stack_.back()];
}

std::vector<uint32_t> PickleMachine::pop_to_mark() {
  if (marks_.empty()) fail("a mark on the stack");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<uint32_t> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

void PickleMachine::tuple(size_t count) {
  std::vector<uint32_t> items(count);
  for (size_t i = count; i > 0; --i) items[i - 1] = pop();
  const uint32_t value = make(Kind::tuple);
  values_[value].items = std::move(items);
  push(value);
}

void PickleMachine::extend_dict(PickleValue& dict, const std::vector<uint32_t>& items) {
  if (items.size() % 2 != 0) fail("a value for each key");
  dict.items.insert(dict.items.end(), items.begin(), items.end());
}

void PickleMachine::remember(uint64_t slot) {
  if (stack_.empty()) fail("a value on the stack");
  // Writers number the slots in order, so a slot far behind the others is an error.
  if (slot > bytes_.size()) fail("a memo slot within reason");
  if (slot >= memo_.size()) memo_.resize(static_cast<size_t>(slot) + 1);
  memo_[static_cast<size_t>(slot)] = {true, stack_.back()};
}

void PickleMachine::recall(uint64_t slot) {
  if (slot >= memo_.size() || !memo_[static_cast<size_t>(slot)].first)
    fail(fmt::format("memo slot {} to be filled", slot));
  push(memo_[static_cast<size_t>(slot)].second);
}

void PickleMachine::global(std::string_view module, std::string_view name) {
  for (const Allowed& allowed : kAllowed)
    if (allowed.module == module && allowed.name == name) {
      push(make(Kind::global, allowed.global));
      return;
    }
  fail(fmt::format("only names of arrays, sparse matrices and dictionaries, got {} of {},",
                   in_quotes(name), in_quotes(module)));
}

void PickleMachine::reduce() {
  const uint32_t arguments_at = pop(), callable_at = pop();
  if (values_[arguments_at].kind != Kind::tuple || values_[callable_at].kind != Kind::global)
    fail("a name and a tuple to apply it to");
  // A reference, because a long tuple may be the arguments of many calls. make() may move values,
  // so it is not used after make().
  const std::vector<uint32_t>& arguments = values_[arguments_at].items;
  const auto is = [&](size_t i, Kind kind) {
    return i < arguments.size() && values_[arguments[i]].kind == kind;
  };
  const auto is_global = [&](size_t i, Global which) {
    return is(i, Kind::global) && values_[arguments[i]].number == which;
  };
  switch (static_cast<Global>(values_[callable_at].number)) {
    case kReconstruct:
      if (!is_global(0, kNdarray)) fail("numpy.ndarray to reconstruct");
      return push(make(Kind::array));
    case kDtype:
      if (!is(0, Kind::string) && !is(0, Kind::unicode)) fail("the name of a dtype");
      return push(make_text(Kind::dtype, values_[arguments[0]].text));
    case kDefaultDict:
      if (!arguments.empty() && !is_global(0, kList)) fail("a defaultdict of lists");
      return push(make(Kind::dict));
    case kNewObject:
      if (!is_global(0, kCsr)) fail("a csr_matrix to reconstruct");
      return push(make(Kind::csr));
    case kEncode:
      if (!is(0, Kind::unicode) || !is(1, Kind::unicode) || values_[arguments[1]].text != "latin1")
        fail("a text to encode as latin1");
      return push(make_text(Kind::string, latin1(values_[arguments[0]])));
    case kList:
    case kDict:
      if (!arguments.empty()) fail("no arguments");
      return push(make(values_[callable_at].number == kList ? Kind::list : Kind::dict));
    case kCsr:
    case kNdarray:
    case kObject:
      fail("a name that may be called");
  }
}

void PickleMachine::new_object() {
  const uint32_t arguments = pop(), type = pop();
  if (values_[arguments].kind != Kind::tuple || !values_[arguments].items.empty() ||
      values_[type].kind != Kind::global || values_[type].number != kCsr)
    fail("a new csr_matrix");
  push(make(Kind::csr));
}

void PickleMachine::build() {
  const uint32_t state_at = pop();
  if (stack_.empty()) fail("an object to build");
  PickleValue& object = values_[stack_.back()];
  const PickleValue& state = values_[state_at];
  if (object.built) fail("an object that is built once");
  if (object.kind == Kind::array) {
    build_array(object, state);
  } else if (object.kind == Kind::dtype) {
    const bool fits = state.kind == Kind::tuple && state.items.size() >= 2 &&
                      values_[state.items[0]].kind == Kind::integer;
    const std::string_view order = fits ? values_[state.items[1]].text : "";
    if (order != "<" && order != "|" && order != "=") fail("a little-endian dtype");
    if (state.items.size() > 2 && values_[state.items[2]].kind != Kind::none)
      fail("a dtype without parts");
  } else if (object.kind == Kind::csr) {
    if (state.kind != Kind::dict) fail("a dict of a csr_matrix's attributes");
    object.items = {state_at};
  } else {
    fail("an array, dtype or csr_matrix to build");
  }
  object.built = true;
}

void PickleMachine::build_array(PickleValue& array, const PickleValue& state) {
  const auto is = [&](size_t i, Kind kind) { return values_[state.items[i]].kind == kind; };
  if (state.kind != Kind::tuple || state.items.size() != 5 || !is(1, Kind::tuple) ||
      !is(2, Kind::dtype) || !(is(3, Kind::boolean) || is(3, Kind::integer)) ||
      !is(4, Kind::string))
    fail("an array's shape, dtype, order and bytes");
  array.items = {state.items[1], state.items[2], state.items[4]};
  array.number = values_[state.items[3]].number != 0;
}

void PickleMachine::run() {
  while (true) {
    opcode_at_ = at_;
    if (at_ == bytes_.size()) fail("a pickle that ends with STOP, got a file that was cut,");
    const auto opcode = static_cast<uint8_t>(bytes_[at_++]);
    if (opcode == '.') break;
    step(opcode);
  }
  root_ = pop();
  if (!stack_.empty() || !marks_.empty()) fail("one value on the stack at STOP");
  if (at_ != bytes_.size())
    fail(fmt::format("the file to end, got {} bytes more,", bytes_.size() - at_));
}

void PickleMachine::step(uint8_t opcode) {
  const auto signed32 = [](uint64_t value) {
    return static_cast<int64_t>(static_cast<int32_t>(static_cast<uint32_t>(value)));
  };
  switch (opcode) {
    case 0x80: {  // PROTO
      const uint64_t protocol = little(1);
      if (protocol > 2) fail(fmt::format("protocol 0 to 2, got {},", protocol));
      return;
    }
    case '(':
      return marks_.push_back(stack_.size());
    case '0':  // POP, also of a mark
      if (!marks_.empty() && marks_.back() == stack_.size()) return marks_.pop_back();
      pop();
      return;
    case '1':
      pop_to_mark();
      return;
    case '2': {  // DUP
      const uint32_t value = pop();
      push(value);
      return push(value);
    }
    case 'N':
      return push(make(Kind::none));
    case 0x88:
    case 0x89:
      return push(make(Kind::boolean, opcode == 0x88));
    case 'I': {
      const std::string_view text = line();
      if (text == "00" || text == "01") return push(make(Kind::boolean, text == "01"));
      return push(make(Kind::integer, integer_of(text)));
    }
    case 'L': {
      std::string_view text = line();
      if (text.ends_with('L')) text.remove_suffix(1);
      return push(make(Kind::integer, integer_of(text)));
    }
    case 0x8a: {  // LONG1
      const uint64_t count = little(1);
      if (count > 8) fail("an integer of 64 bits");
      const uint64_t bits = little(static_cast<size_t>(count));
      const uint64_t unused = 64 - 8 * count;
      const int64_t value =
          count == 0 ? 0 : static_cast<int64_t>(bits << unused) >> static_cast<int>(unused);
      return push(make(Kind::integer, value));
    }
    case 'J':
      return push(make(Kind::integer, signed32(little(4))));
    case 'K':
      return push(make(Kind::integer, static_cast<int64_t>(little(1))));
    case 'M':
      return push(make(Kind::integer, static_cast<int64_t>(little(2))));
    case 'F': {
      const std::string_view text = line();
      double real = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
      if (error != std::errc() || end != text.data() + text.size()) fail("a float");
      push(make(Kind::real));
      values_.back().real = real;
      return;
    }
    case 'G': {  // BINFLOAT, the only big-endian number
      uint64_t bits = 0;
      for (const char c : take(8)) bits = bits << 8 | static_cast<uint8_t>(c);
      push(make(Kind::real));
      values_.back().real = std::bit_cast<double>(bits);
      return;
    }
    case 'S':
      return push(make_text(Kind::string, unescape(line())));
    case 'T': {
      const int64_t count = signed32(little(4));
      if (count < 0) fail("a length of at least 0");
      return push(make_text(Kind::string, take(static_cast<uint64_t>(count))));
    }
    case 'U':
      return push(make_text(Kind::string, take(little(1))));
    case 'V':
      return push(make_text(Kind::unicode, unescape_unicode(line())));
    case 'X':
      return push(make_text(Kind::unicode, take(little(4))));
    case ']':
      return push(make(Kind::list));
    case ')':
      return push(make(Kind::tuple));
    case '}':
      return push(make(Kind::dict));
    case 'l':
    case 't': {
      std::vector<uint32_t> items = pop_to_mark();
      push(make(opcode == 'l' ? Kind::list : Kind::tuple));
      values_.back().items = std::move(items);
      return;
    }
    case 'd': {
      const std::vector<uint32_t> items = pop_to_mark();
      push(make(Kind::dict));
      return extend_dict(values_.back(), items);
    }
    case 'a': {
      const uint32_t value = pop();
      return top(Kind::list, "a list to append to").items.push_back(value);
    }
    case 'e': {
      const std::vector<uint32_t> items = pop_to_mark();
      std::vector<uint32_t>& list = top(Kind::list, "a list to append to").items;
      list.insert(list.end(), items.begin(), items.end());
      return;
    }
    case 's': {
      const uint32_t value = pop(), key = pop();
      return extend_dict(top(Kind::dict, "a dict to put into"), {key, value});
    }
    case 'u': {
      const std::vector<uint32_t> items = pop_to_mark();
      return extend_dict(top(Kind::dict, "a dict to put into"), items);
    }
    case 0x85:
    case 0x86:
    case 0x87:
      return tuple(opcode - 0x84u);
    case 'p':
      return remember(static_cast<uint64_t>(integer_of(line())));
    case 'q':
      return remember(little(1));
    case 'r':
      return remember(little(4));
    case 'g':
      return recall(static_cast<uint64_t>(integer_of(line())));
    case 'h':
      return recall(little(1));
    case 'j':
      return recall(little(4));
    case 'c': {
      const std::string_view module = line();
      return global(module, line());
    }
    case 'R':
      return reduce();
    case 0x81:
      return new_object();
    case 'b':
      return build();
    default:
      fail(fmt::format("an opcode of protocol 0 to 2 that makes data, got {:#04x},", opcode));
  }
}

std::string_view PickleMachine::unescape(std::string_view text) {
  if (text.size() < 2 || (text[0] != '\'' && text[0] != '"') || text.back() != text[0])
    fail("a string in quotes");
  text = text.substr(1, text.size() - 2);
  std::string& out = texts_.emplace_back();
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) fail("a character behind a backslash");
    constexpr std::string_view kFrom = "ntrabfv\\'\"", kTo = "\n\t\r\a\b\f\v\\'\"";
    if (const size_t which = kFrom.find(text[i]); which != std::string_view::npos) {
      out += kTo[which];
      continue;
    }
    const int high = i + 2 < text.size() && text[i] == 'x' ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) fail("a known escape in a string");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::string_view PickleMachine::unescape_unicode(std::string_view text) {
  std::string& out = texts_.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t point = static_cast<uint8_t>(text[i]);
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == 'u') {
      if (text.size() - i < 6) fail("four digits behind \\u");
      point = 0;
      for (size_t d = i + 2; d < i + 6; ++d) {
        const int digit = hex_digit(text[d]);
        if (digit < 0) fail("four digits behind \\u");
        point = point << 4 | static_cast<uint32_t>(digit);
      }
      i += 5;
    }
    append_utf8(out, point);
  }
  return out;
}

// Python 3 writes bytes in protocol 2 as encode(text, "latin1").
std::string_view PickleMachine::latin1(const PickleValue& unicode) {
  std::string& out = texts_.emplace_back();
  const std::string_view text = unicode.text;
  // One text may be encoded many times.
  encoded_ += text.size();
  if (encoded_ > bytes_.size()) fail("texts to encode of no more bytes than the file has");
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    if (c < 0x80) {
      out += text[i];
      continue;
    }
    const uint8_t next = i + 1 < text.size() ? static_cast<uint8_t>(text[i + 1]) : uint8_t{0};
    if ((c != 0xc2 && c != 0xc3) || (next & 0xc0u) != 0x80) fail("characters of latin1");
    out += static_cast<char>((c & 0x03u) << 6 | (next & 0x3fu));
    ++i;
  }
  return out;
}

std::string load(const std::string& path) {
  const int64_t size = file_size("pickle", path);
  FRUGAL_CHECK(size <= int64_t{1} << 30, "[pickle] expected a file of at most 1 GiB, got {} of {}",
               path, size);
  const std::vector<uint8_t> bytes = read_file("pickle", path);
  return {bytes.begin(), bytes.end()};
}

int64_t integer(const PickleMachine& machine, uint32_t index, const char* what) {
  return machine.expect(machine.at(index), Kind::integer, what).number;
}

Shape shape_of(const PickleMachine& machine, const PickleValue& tuple) {
  FRUGAL_CHECK(tuple.items.size() <= Shape::kMaxDim,
               "[pickle] expected at most {} axes in {}, got {}", Shape::kMaxDim, machine.path(),
               tuple.items.size());
  Shape shape;
  for (const uint32_t item : tuple.items) {
    const int64_t extent = integer(machine, item, "an array's extent");
    FRUGAL_CHECK(extent >= 0, "[pickle] expected extents of at least 0 in {}, got {}",
                 machine.path(), extent);
    shape.push_back(extent);
  }
  return shape;
}

Tensor array(const PickleMachine& machine, const PickleValue& value, const char* what) {
  machine.expect(value, Kind::array, what);
  const Shape shape = shape_of(machine, machine.at(value.items[0]));
  const PickleValue& dtype = machine.expect(machine.at(value.items[1]), Kind::dtype, "a dtype");
  const std::string_view bytes = machine.at(value.items[2]).text;
  return numpy_tensor(machine.path(), numpy_dtype(machine.path(), std::string(dtype.text)), shape,
                      value.number != 0,
                      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace

Tensor read_pickle_array(const std::string& path) {
  const std::string bytes = load(path);
  const PickleMachine machine(path, bytes);
  return array(machine, machine.root(), "the pickle");
}

CsrMatrix read_pickle_csr(const std::string& path) {
  const std::string bytes = load(path);
  const PickleMachine machine(path, bytes);
  const PickleValue& csr = machine.expect(machine.root(), Kind::csr, "the pickle");
  const PickleValue& attributes = machine.at(csr.items[0]);
  const auto attribute = [&](const char* name) -> const PickleValue& {
    const PickleValue* found = machine.find(attributes, name);
    FRUGAL_CHECK(found != nullptr, "[pickle] expected a csr_matrix with {} in {}", name, path);
    return *found;
  };
  const Shape shape =
      shape_of(machine, machine.expect(attribute("_shape"), Kind::tuple, "a matrix's shape"));
  FRUGAL_CHECK(shape.dim() == 2, "[pickle] expected a matrix of 2 axes in {}, got {}", path, shape);
  return make_csr(path, shape[0], shape[1], array(machine, attribute("indptr"), "indptr"),
                  array(machine, attribute("indices"), "indices"),
                  array(machine, attribute("data"), "data"));
}

PickleLists read_pickle_lists(const std::string& path) {
  const std::string bytes = load(path);
  const PickleMachine machine(path, bytes);
  const PickleValue& dict = machine.expect(machine.root(), Kind::dict, "the pickle");
  PickleLists out;
  size_t total = 0;
  for (size_t i = 0; i < dict.items.size(); i += 2) {
    out.keys.push_back(integer(machine, dict.items[i], "a key"));
    const PickleValue& list = machine.expect(machine.at(dict.items[i + 1]), Kind::list, "a value");
    // A list that occurs under many keys is copied for each.
    total += list.items.size();
    FRUGAL_CHECK(total <= bytes.size(),
                 "[pickle] expected lists of at most {} numbers in all in {}", bytes.size(), path);
    std::vector<int64_t>& numbers = out.lists.emplace_back();
    numbers.reserve(list.items.size());
    for (const uint32_t item : list.items)
      numbers.push_back(integer(machine, item, "an element of a list"));
  }
  return out;
}

}  // namespace frugal::data
