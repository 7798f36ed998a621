#include "data/formats/pickle.h"

#include "data/formats/npy.h"
#include "data/formats/pickle_machine.h"

namespace frugal::data {
namespace {

using Kind = PickleValue::Kind;

std::string load(const std::string& path) {
  const int64_t size = file_size("pickle", path);
  FRUGAL_CHECK(size <= int64_t{1} << 30, "[pickle] expected a file of at most 1 GiB, got {} of {}",
               path, size);
  const std::vector<uint8_t> bytes = read_file("pickle", path);
  return {bytes.begin(), bytes.end()};
}

int64_t integer(const PickleMachine& machine, uint32_t index, const char* what) {
  return machine.expect(machine.at(index), Kind::integer, what).number;
}

Shape shape_of(const PickleMachine& machine, const PickleValue& tuple) {
  FRUGAL_CHECK(tuple.items.size() <= Shape::kMaxDim,
               "[pickle] expected at most {} axes in {}, got {}", Shape::kMaxDim, machine.path(),
               tuple.items.size());
  Shape shape;
  for (const uint32_t item : tuple.items) {
    const int64_t extent = integer(machine, item, "an array's extent");
    FRUGAL_CHECK(extent >= 0, "[pickle] expected extents of at least 0 in {}, got {}",
                 machine.path(), extent);
    shape.push_back(extent);
  }
  return shape;
}

Tensor array(const PickleMachine& machine, const PickleValue& value, const char* what) {
  machine.expect(value, Kind::array, what);
  const Shape shape = shape_of(machine, machine.at(value.items[0]));
  const PickleValue& dtype = machine.expect(machine.at(value.items[1]), Kind::dtype, "a dtype");
  const std::string_view bytes = machine.at(value.items[2]).text;
  return numpy_tensor(machine.path(), numpy_dtype(machine.path(), std::string(dtype.text)), shape,
                      value.number != 0,
                      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace

Tensor read_pickle_array(const std::string& path) {
  const std::string bytes = load(path);
  const PickleMachine machine(path, bytes);
  return array(machine, machine.root(), "the pickle");
}

CsrMatrix read_pickle_csr(const std::string& path) {
  const std::string bytes = load(path);
  const PickleMachine machine(path, bytes);
  const PickleValue& csr = machine.expect(machine.root(), Kind::csr, "the pickle");
  const PickleValue& attributes = machine.at(csr.items[0]);
  const auto attribute = [&](const char* name) -> const PickleValue& {
    const PickleValue* found = machine.find(attributes, name);
    FRUGAL_CHECK(found != nullptr, "[pickle] expected a csr_matrix with {} in {}", name, path);
    return *found;
  };
  const Shape shape =
      shape_of(machine, machine.expect(attribute("_shape"), Kind::tuple, "a matrix's shape"));
  FRUGAL_CHECK(shape.dim() == 2, "[pickle] expected a matrix of 2 axes in {}, got {}", path, shape);
  return make_csr(path, shape[0], shape[1], array(machine, attribute("indptr"), "indptr"),
                  array(machine, attribute("indices"), "indices"),
                  array(machine, attribute("data"), "data"));
}

PickleLists read_pickle_lists(const std::string& path) {
  const std::string bytes = load(path);
  const PickleMachine machine(path, bytes);
  const PickleValue& dict = machine.expect(machine.root(), Kind::dict, "the pickle");
  PickleLists out;
  size_t total = 0;
  for (size_t i = 0; i < dict.items.size(); i += 2) {
    out.keys.push_back(integer(machine, dict.items[i], "a key"));
    const PickleValue& list = machine.expect(machine.at(dict.items[i + 1]), Kind::list, "a value");
    // One list under many keys would be copied as often.
    total += list.items.size();
    FRUGAL_CHECK(total <= bytes.size(),
                 "[pickle] expected lists of at most {} numbers in all in {}", bytes.size(), path);
    std::vector<int64_t>& numbers = out.lists.emplace_back();
    numbers.reserve(list.items.size());
    for (const uint32_t item : list.items)
      numbers.push_back(integer(machine, item, "an element of a list"));
  }
  return out;
}

}  // namespace frugal::data
