#!/usr/bin/env python3
"""Chat templates as jinja2 runs them, set up as the library transformers sets it up.

usage: tools/chat_golden.py --cases          writes tests/data/text/chat/cases.json anew: templates and what they write
       tools/chat_golden.py LAB FOLDER...    compares `LAB chat` (frugal-lab) with jinja2 on the chat template of each
                                             folder's tokenizer_config.json; exit status 1: a text differs
"""
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

import jinja2
import jinja2.ext
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = ROOT / "tests/data/text/chat/cases.json"


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what a model writes, and changes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def environment():
    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.datetime(2024, 7, 26).strftime(form)
    return made


def render(template, variables):
    try:
        return {"expected": environment().from_string(template).render(**variables)}
    except Exception:  # whatever it is, ours must fail, too
        return {"error": True}


def write_cases():
    cases = json.loads(CASES.read_text())
    for case in cases["templates"]:
        case.pop("expected", None), case.pop("error", None)
        case.update(render(case["template"], cases["variables"]))
    for chat in cases["chats"]:
        chat["results"] = [render(chat["template"], variables_of(conversation))
                           for conversation in cases["conversations"]]
    lines = ["{\"variables\": " + dumped(cases["variables"]) + ",", "\"templates\": ["]
    lines += [",\n".join(dumped(case) for case in cases["templates"]), "],", "\"conversations\": ["]
    lines += [",\n".join(dumped(each) for each in cases["conversations"]), "],", "\"chats\": ["]
    lines += [",\n".join(dumped(chat) for chat in cases["chats"]), "]}"]
    CASES.write_text("\n".join(lines) + "\n")


def dumped(value):
    return json.dumps(value, ensure_ascii=False)


def variables_of(conversation, tokens=None):
    return {"bos_token": "<s>", "eos_token": "</s>", **(tokens or {}), "messages": conversation["messages"],
            "tools": conversation.get("tools"), "documents": None,
            "add_generation_prompt": conversation.get("add_generation_prompt", False)}


def compare(lab, folders):
    conversations = json.loads(CASES.read_text())["conversations"]
    status = 0
    for folder in folders:
        config = json.loads((pathlib.Path(folder) / "tokenizer_config.json").read_text())
        template = config.get("chat_template")
        if template is None:
            print(f"{folder}: no chat template")
            continue
        tokens = {key: value["content"] if isinstance(value, dict) else value for key, value in config.items()
                  if key.endswith("_token") and isinstance(value, (str, dict))}
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for conversation in conversations:
                file.write(dumped(conversation) + "\n")
            file.flush()
            lines = subprocess.run([lab, "chat", folder, file.name], check=True, capture_output=True, text=True).stdout
        own = [json.loads(line) for line in lines.splitlines()]
        expected = [render(template, {**variables_of(each, tokens), **tokens}) for each in conversations]
        wrong = sum(("error" in a) != ("error" in b) or a.get("expected") != b.get("text")
                    for a, b in zip(expected, own))
        print(f"{folder}: {len(own)} of {len(expected)} conversations, {wrong} differ")
        if wrong or len(own) != len(expected):
            status = 1
    return status


if __name__ == "__main__":
    if sys.argv[1:] == ["--cases"]:
        write_cases()
    else:
        sys.exit(compare(sys.argv[1], sys.argv[2:]))
