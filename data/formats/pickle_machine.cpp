#include "data/formats/pickle_machine.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/error.h"
#include "core/quoted.h"

namespace frugal::data {
namespace {

using Kind = PickleValue::Kind;

// The largest graphs of this kind have some hundred thousand values.
constexpr size_t kMaxValues = size_t{1} << 22;

// The names that a pickle may use; each under all the modules it has lived in.
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

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {
      "None",    "a bool", "an integer", "a float", "a string", "a unicode string", "a list",
      "a tuple", "a dict", "a name",     "a dtype", "an array", "a csr_matrix"};
  return kNames[static_cast<size_t>(kind)];
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

// The stack below the last mark belongs to what is being built there.
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
  // Writers number the slots in order, so a far slot is no memo of theirs.
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
  // Not copied: one long tuple may be the arguments of many calls. Values move, so it is not used
  // behind make().
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
    case 'G': {  // the one big-endian number
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

}  // namespace frugal::data
