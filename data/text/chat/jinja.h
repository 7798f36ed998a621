// Runs a template: the part of Jinja that chat templates use (Debian has no C++ library for it).
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/chat/jinja_value.h"

namespace frugal::data::jinja {

struct Node;

// Statements: if, for (with a condition, else, break, continue and `loop`), set, macro, filter,
// generation, raw. Expressions: those of Jinja without calls of Python's own objects. A template
// cannot change what it is given. Thread safety: const.
class Template {
 public:
  // Errors (TemplateError, with the line): syntax; statements of Jinja that are not listed.
  explicit Template(std::string_view source);
  ~Template();

  using Variables = std::vector<std::pair<std::string, Value>>;
  struct Result {
    std::string text;
    // For each element of `watched`: the bytes [begin, end) that were written while it was a loop's
    // element, for each time that some were.
    std::vector<std::vector<std::pair<size_t, size_t>>> written;
    // What stands between {% generation %} and {% endgeneration %}. False: some of it stands in a
    // macro or another body whose text is written later, so its place is not known.
    std::vector<std::pair<size_t, size_t>> marked;
    bool marks_are_placed = true;
  };
  // `watched` are objects within the variables. Errors (TemplateError): what the template raises;
  // names of filters and tests that are not known, types that do not fit, with the line; more than
  // kMostSteps steps, kMostText bytes or kMostElements elements.
  Result render(const Variables& variables, const std::vector<const Dict*>& watched = {}) const;
  static constexpr int64_t kMostSteps = 20'000'000;
  bool has_marks() const { return marks_; }  // {% generation %}

 private:
  std::unique_ptr<const Node> root_;
  bool marks_;
};

// A filter or test with its arguments. Errors: an unknown name; arguments that do not fit.
using Caller = std::function<Value(const std::string& filter, const Value& value, Call& call)>;
Value apply_filter(const std::string& name, const Value& value, Call& call, const Caller& filters,
                   int64_t& steps);
bool apply_test(const std::string& name, const Value& value, const Call& call);
// A method of a text or an object; nothing known: an undefined value.
Value call_method(const Value& object, const std::string& name, Call& call);
bool has_method(const Value& object, const std::string& name);

// What an operator gives. Errors: types that it does not take.
Value calculated(const std::string& sign, const Value& left, const Value& right);
// The member of an object or list; undefined: there is none.
Value member_of(const Value& object, const Value& key);

}  // namespace frugal::data::jinja
