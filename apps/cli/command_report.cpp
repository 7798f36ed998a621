#include <cstdio>
#include <map>

#include "apps/cli/commands.h"
#include "apps/report/page.h"
#include "data/formats/atomic_file.h"

namespace frugal::apps {

std::string write_report(const ReportArguments& arguments) {
  if (arguments.folders.empty())
    throw ConfigError("", "report: expected the folder of a run or more, got none");
  std::vector<ReportRun> runs;
  for (const std::string& folder : arguments.folders) runs.push_back(read_report_run(folder));
  const bool one = runs.size() == 1;
  // Folders of one name are told apart by their paths.
  std::map<std::string, int> named;
  for (const ReportRun& run : runs) ++named[run.name];
  for (size_t i = 0; i < runs.size(); ++i)
    if (named[runs[i].name] > 1) runs[i].name = arguments.folders[i];
  const std::string out = !arguments.out.empty() ? arguments.out
                          : one                  ? arguments.folders.front() + "/" + kReportFile
                                                 : std::string(kReportFile);
  data::atomic_write(out, one ? report_page(runs.front()) : overlay_page(runs));
  return out;
}

void report_command(const ReportArguments& arguments) {
  std::printf("%s\n", write_report(arguments).c_str());
}

}  // namespace frugal::apps
