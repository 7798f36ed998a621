#!/usr/bin/env bash
# @huggingface/jinja 0.5.11, which renders chat templates in JavaScript, writes other texts than Python's jinja2 for
# templates that both accept, without an error. A model that was trained on the one is then asked with the other.
# Seen, with jinja2 3.1.2 set up as the library transformers does it. A value that is printed as it is, as {{ tool }}
# in templates for tools: {'a': None, 'b': True} there, {"a": null, "b": true} here; True there, true here; None there,
# nothing here. 1.0, also by tojson: 1.0 there, 1 here, since JSON's numbers have one kind. "a" ~ ["b"]: a['b'] there,
# ab here. Comparisons: [1] == [1] is true there and false here, "1" == 1 false there and true here; -1 % 3 is 2 there
# and -1 here. ["b", "A", "a"] | unique has 2 elements there and 3 here.
# Frugal: data/text/chat/jinja.cpp writes Python's texts; tests/data/text/chat/jinja_test.cpp, "values print as Python
# prints them"; docs/guide/tokenizers.md, "Chat templates".
. "$(dirname "$0")/packages.sh"
