// The page in a browser: Chromium without a window, where it is installed.
#include <doctest/doctest.h>

#include "tests/apps/report/long_run.h"

namespace frugal::apps {
namespace {

// Its title says, when the page is there, after how many milliseconds and what went wrong.
constexpr const char* kProbe = R"(<script>
  const wrong = [];
  addEventListener('error', (event) => wrong.push(event.message));
  addEventListener('securitypolicyviolation', (event) => wrong.push(event.violatedDirective));
  addEventListener('load', () => {
    const plot = document.querySelector('figure.lines svg'), box = plot.getBoundingClientRect();
    plot.dispatchEvent(new PointerEvent('pointermove',
        {clientX: box.left + box.width / 2, clientY: box.top + 40, bubbles: true}));
    document.querySelector('th[data-sort]').click();
    document.title = JSON.stringify({
      milliseconds: Math.round(performance.now()),
      wrong,
      plots: document.querySelectorAll('svg path.line').length,
      areas: document.querySelectorAll('svg path.area').length,
      tip: [...document.querySelectorAll('.tip')].filter((tip) => tip.textContent).length,
      wide: document.documentElement.scrollWidth > innerWidth + 1,
      sorted: document.querySelector('th[data-sort]').getAttribute('aria-sort')
    });
  });
</script>)";

std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"})
    if (has_program(name)) return name;
  return "";
}

// The title's text in a page that Chromium wrote down.
std::string title_of(const std::string& dom) {
  const size_t begin = dom.find("<title>"), end = dom.find("</title>");
  if (begin == std::string::npos || end == std::string::npos) return "";
  return dom.substr(begin + 7, end - begin - 7);
}

}  // namespace

TEST_CASE("the page opens in a browser without errors, on a desk and on a phone" *
          doctest::skip(browser().empty())) {
  const std::string chromium = browser();
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / "short").status == 0);
  std::filesystem::create_directory(folder / "long");
  write_long_run(folder / "long", "");
  REQUIRE(frugal("report " + folder / "long").status == 0);
  std::string times;
  for (const char* run : {"short", "long"}) {
    std::string page = read_file(folder / run + "/report.html");
    const size_t head = page.find("<style>");
    REQUIRE(head != std::string::npos);
    write_file(folder / "probed.html", page.insert(head, kProbe));
    for (const char* size : {"1280,900", "500,800"}) {  // no window of Chromium's is narrower
      const Ran ran = run_shell(fmt::format(
          "HOME={0} timeout 100 {1} --headless=new --no-sandbox --disable-gpu --user-data-dir={0} "
          "--window-size={2} --virtual-time-budget=2000 --dump-dom file://{3}",
          folder / "browser", chromium, size, folder / "probed.html"));
      const std::string title = title_of(ran.out);
      CAPTURE(std::string(run));
      CAPTURE(std::string(size));
      CAPTURE(title);
      REQUIRE(ran.status == 0);
      REQUIRE(title.starts_with("{"));
      const Json seen = Json::parse(title);
      CHECK(seen["wrong"].empty());
      CHECK(seen["plots"].get<int>() >= 4);
      CHECK(seen["areas"].get<int>() >= 4);
      CHECK(seen["tip"] == 1);
      CHECK(seen["wide"] == false);
      CHECK(seen["sorted"] == "descending");
      times += fmt::format(" {} run, {}: {} ms;", run, size, seen["milliseconds"].get<int64_t>());
    }
  }
  MESSAGE("pages were there after:" << times);
}

}  // namespace frugal::apps
