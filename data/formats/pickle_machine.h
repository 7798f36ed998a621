// The stack machine behind pickle.h: what a pickle builds, as plain values. Internal to data.
#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace frugal::data {

// Values refer to each other by index, so that a pickle that contains itself harms nobody. Texts
// are views of the file's bytes: a value costs the same whatever it names, and memory is at most
// proportional to the file.
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
  bool built = false;  // dtype, array, csr: its state was given
  int64_t number = 0;  // integer, boolean; of a global, which one
  double real = 0;
  int64_t offset = 0;  // where the file made it
  std::string_view text;
  std::vector<uint32_t> items;
};
const char* name_of(PickleValue::Kind kind);

class PickleMachine {
 public:
  // Runs the whole pickle. `bytes` must outlive the machine. Errors: see pickle.h.
  PickleMachine(const std::string& path, std::string_view bytes);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& at(uint32_t index) const { return values_[index]; }
  const std::string& path() const { return path_; }

  // The value under a dictionary's key; nullptr if there is none.
  const PickleValue* find(const PickleValue& dict, std::string_view key) const;
  // `value` if it is of that kind (and built), else an error that names `what`.
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
  // Texts of protocol 0, and bytes that stand as text (pickle_text.cpp).
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
  std::deque<std::string> texts_;  // those that the file holds in another form
  size_t encoded_ = 0;             // bytes of texts that latin1() was given
  uint32_t root_ = 0;
};

}  // namespace frugal::data
