// Options of networks by their names. Each options struct of the zoo has a function list(), with a
// line for each option: its name, what it may be, a sentence of help, and the member that holds it.
// models::make() (models/registry.h), the keys of a configuration, their help and
// configs/schema.json follow from these lists. Names that several networks share are in
// models/zoo/keys.h.
#pragma once
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/option_error.h"
#include "models/value.h"

namespace frugal::models {

// What a value may be. Each `may_be_` allows a kind of values; the functions below make the usual
// ranges.
struct Range {
  bool may_be_flag = false, may_be_integer = false, may_be_number = false, may_be_text = false;
  bool may_be_integers = false;  // a list of integers
  bool may_be_layers = false;    // a list of layers (models/sequential.h)
  bool may_be_nothing = false;
  // Numbers, and each of a list of integers, lie in [least, most], without the ends that are open.
  double least = 0, most = 0;
  bool opens_least = false, opens_most = false;
  const char* choices = nullptr;    // the texts: "A, B"
  int64_t fewest = 0, longest = 0;  // how many entries a list has
};

namespace range {

constexpr Range flag() { return {.may_be_flag = true}; }
constexpr Range integer(int64_t least, int64_t most) {
  return {.may_be_integer = true,
          .least = static_cast<double>(least),
          .most = static_cast<double>(most)};
}
constexpr Range number(double least, double most) {
  return {.may_be_number = true, .least = least, .most = most};
}
constexpr Range positive(double most) {  // in (0, most]
  return {.may_be_number = true, .most = most, .opens_least = true};
}
constexpr Range below(double least, double most) {  // in [least, most)
  return {.may_be_number = true, .least = least, .most = most, .opens_most = true};
}
constexpr Range choice(const char* choices) { return {.may_be_text = true, .choices = choices}; }
constexpr Range any_text() { return {.may_be_text = true}; }
constexpr Range integers(int64_t least, int64_t most, int64_t fewest, int64_t longest) {
  return {.may_be_integers = true,
          .least = static_cast<double>(least),
          .most = static_cast<double>(most),
          .fewest = fewest,
          .longest = longest};
}
constexpr Range or_nothing(Range some) {
  some.may_be_nothing = true;
  return some;
}

}  // namespace range

std::vector<std::string> choices_of(const Range& range);
size_t place_of(const Range& range, const std::string& choice);  // REQUIRES: one of its choices
std::string text_of(const Range& range);                         // "an integer in [1, 8]"
bool fits(const Range& range, const Value& value);
// The value as it is in messages: at most 80 characters, which a terminal may have.
std::string shown(const Value& value);
// Errors: OptionError at `path`, which says what was expected and what came.
void check_range(const Range& range, const Value& value, const std::string& path);

// An option's name, and what is said of it.
struct Key {
  // Who has the default. `fixed`: all networks have one default. `own`: each network has its own.
  // `data`: the data say it, so it is no key of a configuration's network.
  enum Default : uint8_t { fixed, own, data };
  const char* name;
  Range range;
  const char* help;
  Default by = fixed;
};

// An option of the struct S: its key, and how it is set and read.
template <class S>
struct Option {
  using Set = void (*)(S&, const Value&);

  template <class B, class T>
  Option(const Key& its_key, T B::*member)
      : key(its_key),
        set([member, range = its_key.range](S& s, const Value& v) { put(s.*member, v, range); }),
        get([member, range = its_key.range](const S& s) { return got(s.*member, range); }) {}
  // An option that is no single member. Errors of `put_it`: OptionError at the key's name.
  Option(const Key& its_key, Set put_it, Value usual = {})
      : key(its_key), set(put_it), get([usual](const S&) { return usual; }) {}

  Key key;
  std::function<void(S&, const Value&)> set;  // REQUIRES: fits(key.range, value)
  std::function<Value(const S&)> get;

 private:
  template <class T>
  static void put(T& member, const Value& value, const Range& range) {
    if constexpr (std::is_same_v<T, bool>) {
      member = value.flag();
    } else if constexpr (std::is_same_v<T, int64_t>) {
      member = value.integer();
    } else if constexpr (std::is_same_v<T, double>) {
      member = value.number();
    } else if constexpr (std::is_enum_v<T>) {  // choices are in the order of the enumerators
      member = static_cast<T>(place_of(range, value.text()));
    } else {
      member = value.integers();
    }
  }
  template <class T>
  static Value got(const T& member, const Range& range) {
    if constexpr (std::is_enum_v<T>)
      return choices_of(range).at(static_cast<size_t>(member));
    else
      return member;
  }
};

template <class S>
std::vector<Option<S>> joined(std::vector<Option<S>> options, const std::vector<Option<S>>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

// Options by name: the published networks of one kind, in order.
template <class S>
using Published = std::vector<std::pair<std::string, S>>;

// Errors: an unknown name; the message lists the known ones. `op` is what the message begins with.
template <class S>
S find_published(const Published<S>& all, const char* op, const std::string& name) {
  std::string names;
  for (const auto& [each, options] : all) {
    if (each == name) return options;
    names += (names.empty() ? "" : ", ") + each;
  }
  throw Error(fmt::format("[{}] expected one of {}, got '{}'", op, names, name));
}

// Which sizes a network takes beside its own. Layers are `least_layers` and more, by `layers_step`;
// widths and sides of images are multiples. (Other sides may do, too; these do with every network
// of the family.)
struct Sizes {
  int64_t least_layers = 1, layers_step = 1;
  int64_t width_step = 4;
  int64_t side_step = 4;
  int64_t least_side = 1;  // images that are smaller are refused
};

}  // namespace frugal::models
