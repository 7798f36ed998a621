// Options by their names. An options struct that programs fill by names has a function list(), with
// a line for each option: its name, what it may be, a sentence of help, and the member that holds
// it. The struct's members are the defaults. models::make() (models/registry.h), optim::make()
// (optim/registry.h), the keys of a configuration, their help and configs/schema.json follow from
// these lists.
#pragma once
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/value.h"

namespace frugal::by_name {

// What a value may be. Each `may_be_` allows a kind of values; the functions below make the usual
// ranges.
struct Range {
  bool may_be_flag = false, may_be_integer = false, may_be_number = false, may_be_text = false;
  bool may_be_integers = false, may_be_numbers = false, may_be_texts = false;  // lists of these
  bool may_be_layers = false;  // a list of layers (models/sequential.h)
  bool may_be_nothing = false;
  bool is_bytes = false;  // an integer, for which programs may also take a text such as "2 GiB"
  // Numbers, and each of a list of them, lie in [least, most], without the ends that are open.
  double least = 0, most = 0;
  bool opens_least = false, opens_most = false;
  int64_t step = 1;                 // integers are multiples of it
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
// What is divided by, or added to a divisor. Numbers below 1e-38 are 0 in f32, or their inverses
// are infinite; the limit leaves room for what is multiplied by an inverse.
inline constexpr double kLeastDivisor = 1e-30;
constexpr Range divisor(double most) { return number(kLeastDivisor, most); }
constexpr Range below(double least, double most) {  // in [least, most)
  return {.may_be_number = true, .least = least, .most = most, .opens_most = true};
}
constexpr Range choice(const char* choices) { return {.may_be_text = true, .choices = choices}; }
constexpr Range any_text() { return {.may_be_text = true}; }
// A list of what `entry` allows: integers, numbers or texts.
constexpr Range list(Range entry, int64_t fewest, int64_t longest) {
  entry.may_be_integers = entry.may_be_integer;
  entry.may_be_numbers = entry.may_be_number;
  entry.may_be_texts = entry.may_be_text;
  entry.may_be_integer = entry.may_be_number = entry.may_be_text = false;
  entry.fewest = fewest;
  entry.longest = longest;
  return entry;
}
constexpr Range integers(int64_t least, int64_t most, int64_t fewest, int64_t longest) {
  return list(integer(least, most), fewest, longest);
}
constexpr Range multiple(int64_t step, int64_t least, int64_t most) {
  Range some = integer(least, most);
  some.step = step;
  return some;
}
constexpr Range bytes() {
  Range some = integer(0, int64_t{1} << 62);
  some.is_bytes = true;
  return some;
}
constexpr Range or_nothing(Range some) {
  some.may_be_nothing = true;
  return some;
}

}  // namespace range

std::vector<std::string> choices_of(const Range& range);
Range entry_of(const Range& range);                              // what each entry of a list may be
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
  bool affects_results = true;  // false: a run may go on with another value
};

constexpr Key without_effect(Key key) {
  key.affects_results = false;
  return key;
}

// Who reads an option that is not read always.
template <class S>
struct ReadWhen {
  // For messages: the subject of "... read it". "@" stands before the name of an option of the same
  // struct, for its path.
  std::string who;
  std::vector<std::string> by;  // the options that decide it
  std::function<bool(const S&)> when = {};
};

// An option of the struct S: its key, and how it is set and read.
template <class S>
struct Option {
  using Set = void (*)(S&, const Value&);

  template <class B, class T>
  Option(const Key& its_key, T B::*member, ReadWhen<S> when = {})
      : key(its_key),
        read(std::move(when)),
        set([member, range = its_key.range](S& s, const Value& v) { put(s.*member, v, range); }),
        get([member, range = its_key.range](const S& s) { return got(s.*member, range); }) {}
  // An option that is no single member. Errors of `put_it`: OptionError at the key's name.
  Option(const Key& its_key, Set put_it, Value usual = {})
      : key(its_key), set(put_it), get([usual](const S&) { return usual; }) {}

  // An option of a base of S.
  template <class B>
  requires std::is_base_of_v<B, S> &&(!std::is_same_v<B, S>)explicit Option(const Option<B>& own)
      : key(own.key), set(own.set), get(own.get) {}
  // An option that is no member as it is.
  Option(const Key& its_key, std::function<void(S&, const Value&)> put_it,
         std::function<Value(const S&)> get_it, ReadWhen<S> when = {})
      : key(its_key), read(std::move(when)), set(std::move(put_it)), get(std::move(get_it)) {}
  Key key;
  ReadWhen<S> read = {};                      // without `when`: it is read always
  std::function<void(S&, const Value&)> set;  // REQUIRES: fits(key.range, value)
  std::function<Value(const S&)> get;

 private:
  template <class T>
  static void put(T& member, const Value& value, const Range& range) {
    if constexpr (std::is_same_v<T, bool>) {  // true: the second of two choices
      member = range.may_be_text ? place_of(range, value.text()) == 1 : value.flag();
    } else if constexpr (std::is_integral_v<T>) {
      member = static_cast<T>(value.integer());
    } else if constexpr (std::is_same_v<T, double>) {
      member = value.number();
    } else if constexpr (std::is_enum_v<T>) {  // choices are in the order of the enumerators
      member = static_cast<T>(place_of(range, value.text()));
    } else if constexpr (std::is_same_v<T, std::string>) {
      member = value.text();
    } else if constexpr (requires { member.has_value(); }) {
      member.reset();
      if (value.is_nothing()) return;
      typename T::value_type inner{};
      put(inner, value, range);
      member = std::move(inner);
    } else {
      member.clear();
      for (const Value& each : value.list()) put(member.emplace_back(), each, range);
    }
  }
  template <class T>
  static Value got(const T& member, const Range& range) {
    if constexpr (std::is_enum_v<T> || std::is_same_v<T, bool>) {
      if (range.may_be_text) return choices_of(range).at(static_cast<size_t>(member));
    }
    if constexpr (std::is_enum_v<T>) {
      return {};
    } else if constexpr (std::is_same_v<T, double>) {
      return range.may_be_integer ? Value(static_cast<int64_t>(member)) : Value(member);
    } else if constexpr (requires { member.has_value(); }) {
      return member ? got(*member, range) : Value();
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return member;
    } else {
      Value::List list;
      for (const auto& each : member) list.push_back(got(each, range));
      return list;
    }
  }
};

// The option of a member of S.
template <class S, class R>
Option<S> option_of(R S::*part, const Option<R>& own) {
  ReadWhen<S> when;
  if (own.read.when)
    when = {own.read.who, own.read.by,
            [part, inner = own.read.when](const S& s) { return inner(s.*part); }};
  return {own.key, [part, inner = own.set](S& s, const Value& v) { inner(s.*part, v); },
          [part, inner = own.get](const S& s) { return inner(s.*part); }, std::move(when)};
}
template <class S, class R>
std::vector<Option<S>> options_of(R S::*part, const std::vector<Option<R>>& list) {
  std::vector<Option<S>> all;
  for (const Option<R>& each : list) all.push_back(option_of(part, each));
  return all;
}

// Sets in `s` what `given` says of the options of `list`. Errors: OptionError at an option's name.
template <class S>
void set_options(S& s, const std::vector<Option<S>>& list, const Options& given) {
  for (const Option<S>& each : list) {
    const auto found = given.find(each.key.name);
    if (found == given.end()) continue;
    check_range(each.key.range, found->second, each.key.name);
    each.set(s, found->second);
  }
}

// Errors: OptionError at an option's name, for a value out of its range.
template <class S>
void check_options(const S& s, const std::vector<Option<S>>& list) {
  for (const Option<S>& each : list) check_range(each.key.range, each.get(s), each.key.name);
}

template <class S>
std::vector<Option<S>> joined(std::vector<Option<S>> options, const std::vector<Option<S>>& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

}  // namespace frugal::by_name
