// Steps on meta count the bytes of steps with values, also where widths depend on values.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr const char* kConvolutions = R"({
  "model": {"name": "resnet20"},
  "data": {"name": "random", "shape": [16, 16, 3], "batch_size": 32},
  "compression": {"advanced": {"min_elements": 512}},
  "threads": 1
})";

Json rows_of(const Ran& ran) {
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out)["variants"];
}

void check_alike(const Json& rows, const Json& planned) {
  REQUIRE(rows.size() == planned.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(rows[i]["name"].get<std::string>());
    for (const char* key : {"activation_bytes", "packed_bytes"})
      CHECK(rows[i]["memory"][key].get<double>() ==
            doctest::Approx(planned[i]["memory"][key].get<double>()).epsilon(0.01));
    CHECK(rows[i]["memory"]["packed_bytes"].get<int64_t>() > 0);
  }
}

TEST_CASE("every level of ActNN takes on meta what it takes with values") {
  const TempFolder folder;
  write_file(folder / "c.json", kConvolutions);
  std::string bench = "bench step --only --json --repeats 1 " + folder / "c.json";
  for (const char* level : {"L1", "L2", "L2.5", "L3"})
    for (const char* recipes : {"true", "false"}) {
      if (level == std::string("L1") && recipes == std::string("false")) continue;
      bench += fmt::format(
          " --variant '{0} {1}: compression.policy=actnn compression.level={0} "
          "compression.recipes={1}'",
          level, recipes);
    }
  bench += " --variant '1.5: compression.policy=actnn compression.bits=1.5'";
  const Json planned = rows_of(frugal(bench + " --set device=meta"));
  check_alike(rows_of(frugal(bench)), planned);
  CHECK(planned[0]["widths"] == "");
  CHECK(planned.back()["widths"].get<std::string>().find("average") != std::string::npos);
}

TEST_CASE("AC-GC takes on meta what its profile recorded, and its average without one") {
  const TempFolder folder;
  write_file(folder / "c.json", kConvolutions);
  const std::string bench = "bench step --only --json --repeats 1 " + folder / "c.json",
                    file = folder / "profile.json";
  const std::vector<std::string> rows = {
      "a: compression.policy=acgc", "b: compression.policy=acgc compression.acgc.rule=published",
      // Otherwise the bounds change between the steps that are counted.
      "c: compression.policy=acgc compression.acgc.count=expected "
      "compression.acgc.interval=9999999",
      "d: compression.bits=2.5 compression.entropy=true"};
  std::string real = bench + " --record-profile " + file, plain = bench + " --set device=meta",
              profiled = plain;
  for (const std::string& row : rows) {
    real += fmt::format(" --variant '{}'", row);
    plain += fmt::format(" --variant '{}'", row);
    profiled += fmt::format(" --variant '{} compression.advanced.profile={}'", row, file);
  }
  const Json measured = rows_of(frugal(real)), with = rows_of(frugal(profiled)),
             without = rows_of(frugal(plain));
  check_alike(measured, with);
  for (const Json& row : with)
    CHECK(row["widths"].get<std::string>().find(file) != std::string::npos);
  CHECK(without[0]["widths"].get<std::string>().find("ResNet-20") != std::string::npos);
  CHECK(without[1]["widths"].get<std::string>().find("published") != std::string::npos);
  CHECK(without[1]["memory"]["packed_bytes"] != with[1]["memory"]["packed_bytes"]);
  const Ran text = frugal("bench step --only " + folder / "c.json" +
                          " --set device=meta --variant 'a: compression.policy=acgc'");
  CHECK(text.out.find("a: ") != std::string::npos);
  CHECK(text.out.find("bits for each value") != std::string::npos);
}

TEST_CASE("profiles that do not fit are refused") {
  const TempFolder folder;
  write_file(folder / "c.json", kConvolutions);
  const std::string bench = "bench step --only --json --repeats 1 " + folder / "c.json",
                    file = folder / "profile.json", acgc = " --set compression.policy=acgc",
                    meta = " --set device=meta",
                    profile = " --set compression.advanced.profile=" + file;
  const auto fails = [](const Ran& ran, const char* text) {
    CHECK(ran.status == 2);
    CHECK_MESSAGE(ran.err.find(text) != std::string::npos, ran.err);
  };
  const std::string row = acgc + " --variant 'a: compression.recipes=true'";
  fails(frugal(bench + meta + row + " --record-profile " + file), "got meta");
  fails(frugal(bench + " --record-profile " + file + " --variant 'a: compression.policy=acgc " +
               "compression.offload=" + folder / "" + "'"),
        "no compression.offload");
  CHECK(frugal(bench + " --record-profile " + file + " --variant 'a: compression.bits=0'").status ==
        2);
  CHECK(frugal(bench + row + " --record-profile " + folder / "no/such/folder").status == 2);
  REQUIRE(frugal(bench + row + " --record-profile " + file).status == 0);
  fails(frugal(bench + row + profile), "device meta");
  fails(frugal(bench + meta + row + profile + " --set compression.acgc.growth=2"),
        "compression.acgc.growth");
  fails(frugal(bench + meta + row + profile + " --set model.name=resnet32"), "model.name");
  Json document = Json::parse(read_file(file));
  const auto refused = [&](const Json& changed, const char* text) {
    write_file(file, changed.dump());
    fails(frugal(bench + meta + row + profile), text);
  };
  Json changed = document;
  changed["frugal_profile"] = 2;
  refused(changed, "version");
  changed = document;
  changed["runs"] = Json::array();
  refused(changed, "got none");
  changed["runs"] = 3;
  refused(changed, "runs");
  changed = document;
  changed["runs"][0].erase("config");
  refused(changed, "config");
  changed = document;
  changed["runs"][0]["tensors"] = Json::array();
  refused(changed, "packed tensors");
  for (const char* key : {"seq", "elements", "bytes"})
    for (const Json& value : {Json(-1), Json("x"), Json(1.5)}) {
      changed = document;
      changed["runs"][0]["tensors"][0][key] = value;
      refused(changed, key);
    }
  changed = document;
  changed["runs"][0]["tensors"][1]["seq"] = changed["runs"][0]["tensors"][0]["seq"];
  refused(changed, "twice");
  changed = document;
  changed["runs"][0]["tensors"][0]["op"] = 3;
  refused(changed, "op");
  // An earlier version's does not have later keys.
  changed = document;
  changed["runs"][0]["config"].erase("compression.advanced.recomputed");
  write_file(file, changed.dump());
  CHECK(frugal(bench + meta + row + profile).status == 0);
  write_file(file, "{");
  fails(frugal(bench + meta + row + profile), "JSON");
}

}  // namespace
}  // namespace frugal::apps
