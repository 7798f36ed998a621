#include "tests/op_table/op_table.h"

namespace frugal::op_table {

void add_transformer(std::vector<Op>&) {}

}  // namespace frugal::op_table
