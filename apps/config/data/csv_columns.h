// columns.json of a run's folder: how a row of a table becomes an input, and what is predicted.
#pragma once
#include "apps/json.h"
#include "data/tables/csv_table.h"

namespace frugal::apps {

Json columns_json(const data::CsvEncoding& encoding);
// Errors: whatever does not fit; the caller names the file.
data::CsvEncoding columns_from(const Json& json);

}  // namespace frugal::apps
