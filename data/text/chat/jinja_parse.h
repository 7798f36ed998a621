// Reads a template: the part of Jinja that chat templates use. Internal to data/text.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/chat/jinja_value.h"

namespace frugal::data::jinja {

struct Node {
  enum class Kind : uint8_t {
    // Expressions. The parts are in `parts`, in the order that the comment says.
    constant,    // value
    name,        // text
    list,        // elements
    dict,        // key, value, key, value ...
    attribute,   // object; text
    item,        // object, key
    slice,       // object, begin, end, step; null: it is left out
    call,        // function, arguments; the last names.size() arguments have names
    filter,      // value, arguments, as call; text
    test,        // value, arguments; text; negated by `flag`
    negate,      // value
    plus,        // value
    no,          // value: not
    both,        // left, right: and
    either,      // left, right: or
    choice,      // condition, value, other; other may be null
    compare,     // first, then one for each of `names`, the operators
    arithmetic,  // left, right; text is the operator
    // Statements.
    output,     // value
    literal,    // text
    block,      // statements
    branch,     // condition, then, else; else may be null
    loop,       // list, filter, body, else; names are the targets; filter and else may be null
    set,        // value; names are the targets; text: an attribute of the first one
    set_block,  // body; names
    macro,      // body, then the defaults; names are the parameters; text
    filtered,   // body and a filter whose value is null
    generated,  // body
    leave,      // break
    skip,       // continue
  };
  Kind kind = Kind::block;
  int64_t line = 0;
  int height = 1;  // the nodes from it down to the deepest one
  std::string text;
  Value value;
  bool flag = false;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<Node>> parts;
};

// As transformers reads templates: the line end behind a block goes, and so does white space before
// a block that is alone in its line. Errors (TemplateError, with the line): syntax; a tag that is
// not known; more than 1 MiB; deep nesting; a chain of over 200 parts.
std::unique_ptr<Node> parse(std::string_view source);

}  // namespace frugal::data::jinja
