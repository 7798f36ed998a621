// Tables with their results as text of several formats.
#pragma once
#include <string>
#include <vector>

#include "apps/reproduce/view.h"

namespace frugal::apps {

std::string markdown_of(const View& view);  // with each cell's command
// A line for each number: table, row, setting, metric, source (published, as_published, ours),
// value, spread, unit, seeds, scale, where (in the paper), command. Bytes are whole numbers.
std::string csv_of(const View& view);
// One file without others: light and dark, and with a plot if the table is a figure.
std::string html_of(const View& view);
std::string html_index(const std::vector<View>& views);  // links to NAME.html

// docs/results.md: all tables, without the cells' commands. `before` is the text of the page that
// this one replaces. A table without any result keeps the section that it has there, and a cell
// without a result keeps the value, so results of other machines stay.
std::string results_page(const std::vector<View>& views, const std::string& before = "");

// The table's figure in HTML: one line for each way and row. REQUIRES: view.table.plot.
std::string figure_of(const View& view);

}  // namespace frugal::apps
