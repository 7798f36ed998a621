#!/usr/bin/env bash
# @huggingface/jinja 0.5.11, which renders chat templates in JavaScript, writes other texts than Python's jinja2 for
# templates that both accept, without an error. A model that was trained on the one is then asked with the other.
# Seen, with jinja2 3.1.2 set up as the library transformers does it. What is printed as it is, as {{ tool }} in
# templates for tools: {'a': None, 'b': True} there and {"a": null, "b": true} here; True and true; None and nothing.
# 1.0 of a call or a schema, also by tojson: 1.0 there and 1 here. "a" ~ ["b"]: a['b'] there and ab here.
# [1] == [1] is true there and false here, "1" == 1 false there and true here; -1 % 3 is 2 there and -1 here.
# ["b", "A", "a"] | unique has 2 elements there and 3 here. Texts, numbers and loops alone are equal.
# Frugal: data/text/chat/jinja_value.cpp writes Python's texts; tests/data/text/chat/chat_template_test.cpp, "chat
# templates: texts are those of jinja2"; docs/guide/tokenizers.md, "Chat templates", says what that means for others.
. "$(dirname "$0")/packages.sh"
command -v node >/dev/null && command -v npm >/dev/null || not_tried "no node and npm"
packages bookworm 'python3-jinja2=3.1.2*'
npm install --silent --no-audit --no-fund --ignore-scripts --cache "$work/cache" --prefix "$work/js" \
  @huggingface/jinja@0.5.11 >/dev/null 2>&1 || not_tried "npm has no @huggingface/jinja@0.5.11"

cat >"$work/templates" <<'END_OF_TEMPLATES'
{% for m in messages %}{{ m.role }}: {{ m.content | trim }}{% if not loop.last %}, {% endif %}{% endfor %}
{{ tools[0] }}
{{ tools[0] | tojson }}
{{ messages[0].content == "hi" }}
{{ tools[0].missing }}|{{ tools[0].none }}|
{{ "a" ~ ["b"] }}
{{ "yes" if [1] == [1] else "no" }}
{{ "yes" if "1" == 1 else "no" }}
{{ -1 % 3 }}
{{ ["b", "A", "a"] | unique | list | length }}
END_OF_TEMPLATES
cat >"$work/variables" <<'END_OF_VARIABLES'
{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": " yes\n"}],
 "tools": [{"name": "f", "strict": true, "none": null, "limit": 1.0}]}
END_OF_VARIABLES
cp "$work/templates" "$work/variables" "$work/bookworm/tmp/"
inside bookworm python3 -c '
import json
from jinja2.sandbox import ImmutableSandboxedEnvironment

environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
variables = json.load(open("/tmp/variables"))
for line in open("/tmp/templates"):
    print(environment.from_string(line.strip()).render(**variables))' >"$work/python"
cat >"$work/js/run.mjs" <<'END_OF_PROGRAM'
import { readFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";

const [templates, variables] = process.argv.slice(2).map((name) => readFileSync(name, "utf8"));
for (const line of templates.trim().split("\n")) console.log(new Template(line).render(JSON.parse(variables)));
END_OF_PROGRAM
node "$work/js/run.mjs" "$work/templates" "$work/variables" >"$work/script"

paste -d '\n' "$work/templates" "$work/python" "$work/script" | sed '2~3s/^/    Python: /; 3~3s/^/    JavaScript: /'
check() {  # the number of a template, and what the two write
  expect "template $1" [ "$(sed -n "$1p" "$work/python")" = "$2" -a "$(sed -n "$1p" "$work/script")" = "$3" ]
}
check 1 'user: hi, assistant: yes' 'user: hi, assistant: yes'
check 2 "{'name': 'f', 'strict': True, 'none': None, 'limit': 1.0}" \
  '{"name": "f", "strict": true, "none": null, "limit": 1}'
check 3 '{"name": "f", "strict": true, "none": null, "limit": 1.0}' \
  '{"name": "f", "strict": true, "none": null, "limit": 1}'
check 4 True true
check 5 '|None|' '||'
check 6 "a['b']" ab
check 7 yes no
check 8 no yes
check 9 2 -1
check 10 2 3
done_with_it
