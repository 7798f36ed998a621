// Names of classes from a file, in the order of a network's outputs.
#pragma once
#include <string>
#include <vector>

namespace frugal::data {

// Class i is called ids[i] in the data (a folder, a label), and names[i] for people.
struct ClassNames {
  std::vector<std::string> ids, names;
};

// Reads one of these:
//   lines of text       a class each; of ImageNet's LOC_synset_mapping.txt, "n01440764 tench, Tinca
//                       tinca", the first word is the id
//   a JSON list         ["cat", "dog"]
//   a JSON object       {"0": "cat"} or, as ImageNet's class index, {"0": ["n01440764", "tench"]}
// Errors (naming the file): none of these; no names; an id twice; numbers of an object that are not
// 0, 1, ...
ClassNames read_class_names(const std::string& path);

// The order of the classes `found` in the data. They may be ids, names, or numbers of outputs;
// classes of the file that are not found stay, without samples. Messages name the file `path`.
// Errors: a class that the file has not.
ClassNames order_of_classes(const ClassNames& known, const std::vector<std::string>& found,
                            const std::string& path);

}  // namespace frugal::data
