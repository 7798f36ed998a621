#include "core/option.h"

#include <doctest/doctest.h>

#include <optional>

namespace frugal::by_name {
namespace {

struct Inner {
  double share = 0.5;
  static std::vector<Option<Inner>> list() {
    return {{{"share", range::below(0, 1), "A share."}, &Inner::share}};
  }
};

struct Outer {
  enum class Way : uint8_t { slow, fast } way = Way::slow;
  int group = 256;
  bool outside = false;
  double least = 1;
  std::string text = "a";
  std::optional<int64_t> slice = {};
  std::vector<double> strengths = {};
  std::vector<std::string> names = {};
  Inner inner = {};
  static std::vector<Option<Outer>> list() {
    std::vector<Option<Outer>> all = {
        {{"way", range::choice("slow, fast"), ""}, &Outer::way},
        {{"group", range::multiple(8, 8, 512), ""},
         &Outer::group,
         {"@way fast", {"way"}, [](const Outer& o) { return o.way == Way::fast; }}},
        {{"norms", range::choice("inside, outside"), ""}, &Outer::outside},
        {{"least", range::integer(1, 16), ""}, &Outer::least},
        {{"text", range::any_text(), ""}, &Outer::text},
        {{"slice", range::or_nothing(range::bytes()), ""}, &Outer::slice},
        {{"strengths", range::list(range::positive(16), 0, 4), ""}, &Outer::strengths},
        {{"names", range::list(range::any_text(), 0, 2), ""}, &Outer::names}};
    return joined(std::move(all), options_of(&Outer::inner, Inner::list()));
  }
};

std::string refused(const std::string& name, const Value& value) {
  Outer outer;
  try {
    set_options(outer, Outer::list(), {{name, value}});
  } catch (const OptionError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a list of options sets members of every type, and gives them back") {
  const Options given = {{"way", "fast"},
                         {"group", 64},
                         {"norms", "outside"},
                         {"least", 4},
                         {"text", "b"},
                         {"slice", 1e3},
                         {"strengths", Value::List{0.5, 2}},
                         {"names", Value::List{"x", "y"}},
                         {"share", 0.25}};
  Outer outer;
  set_options(outer, Outer::list(), given);
  CHECK(outer.way == Outer::Way::fast);
  CHECK(outer.group == 64);
  CHECK(outer.outside);
  CHECK(outer.least == 4);
  CHECK(outer.text == "b");
  CHECK(outer.slice == 1000);
  CHECK(outer.strengths == std::vector<double>{0.5, 2});
  CHECK(outer.names == std::vector<std::string>{"x", "y"});
  CHECK(outer.inner.share == 0.25);
  Outer again;
  for (const Option<Outer>& each : Outer::list()) {
    CAPTURE(each.key.name);
    each.set(again, each.get(outer));
    CHECK(each.get(again) == each.get(outer));
    CHECK((each.read.when == nullptr || each.read.when(outer)));
  }
  CHECK_FALSE(Outer::list()[1].read.when(Outer()));
  set_options(outer, Outer::list(), {{"slice", {}}});
  CHECK_FALSE(outer.slice);
  CHECK_NOTHROW(check_options(Outer(), Outer::list()));
  outer.group = 12;
  CHECK_THROWS_WITH_AS(check_options(outer, Outer::list()),
                       "group: expected a multiple of 8 in [8, 512], got 12", OptionError);
}

TEST_CASE("values out of range are refused, with the place and what was expected") {
  CHECK(refused("way", "quick") == "way: expected one of slow, fast, got \"quick\"");
  CHECK(refused("group", 12) == "group: expected a multiple of 8 in [8, 512], got 12");
  CHECK(refused("text", 1) == "text: expected a text, got 1");
  CHECK(refused("strengths", Value::List{1, 0}) ==
        "strengths[1]: expected a number in (0.0, 16.0], got 0");
  CHECK(refused("names", Value::List{"a", "b", "c"}) ==
        "names: expected a list of 0 to 2, each a text, got [\"a\",\"b\",\"c\"]");
  CHECK(refused("share", 1) == "share: expected a number in [0.0, 1.0), got 1");
  CHECK(refused("share", 0.5).empty());
}

}  // namespace frugal::by_name
