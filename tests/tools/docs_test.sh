#!/usr/bin/env bash
# Checks that the pages say nothing that is no longer true. Prints each fault as PAGE:LINE: what; exit status 1 if any.
# usage: docs_test.sh ROOT BIN_DIR [PAGE ...]      BIN_DIR holds the binaries; default: README.md, CONTRIBUTING.md, docs/
#
# What is checked:
# - ```sh run: the block is run as a script in a scratch copy of the tree's layout. The lines of a ```text block that
#   follows must occur in what was printed; "..." in such a line stands for any text.
# - ```sh: each command is parsed. Its file, subcommand and options exist; keys after --set and --variant are accepted.
# - ```python: Python parses it, and the files of configs/ and examples/ that it names exist.
# - ```json: is a configuration that `frugal train --print-config` accepts.
# - `inline code`: keys such as train.epochs, options such as --resume, files of the tree and `frugal ...` commands. Of a
#   source file that is named without its folder, there is one.
# - [links](to/files) and [to headings](page.md#of-a-page).
set -uo pipefail
shopt -s extglob
export LC_ALL=C
root=$(cd "$1" && pwd) bin=$(cd "$2" && pwd)
shift 2
cd "$root" || exit 1
pages=("$@")
[ ${#pages[@]} -gt 0 ] || mapfile -t pages < <(ls README.md CONTRIBUTING.md ARCHITECTURE.md; find docs -name '*.md' | sort)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tree/build/release"
for name in configs bench tools examples; do ln -s "$root/$name" "$work/tree/$name"; done
ln -s "$bin" "$work/tree/build/release/bin"
export PATH=$bin:$PATH HOME=$work OMP_WAIT_POLICY=passive
unset FRUGAL_DATA
echo '{}' >"$work/empty.json"

faults=0 ran=0 parsed=0
page= at=0
fault() {
  printf '%s:%d: %s\n' "$page" "$at" "$1"
  faults=$((faults + 1))
}

# ---- what exists
frugal train --help-config >"$work/keys.txt" || { echo "frugal train --help-config fails"; exit 1; }
declare -A keys=() sections=()
while read -r key _; do
  [[ $key =~ ^[a-z0-9_]+(\.[a-z0-9_]+)*$ ]] || continue
  keys[$key]=1
  while [[ $key == *.* ]]; do key=${key%.*} && sections[$key]=1; done
done < <(sed -n 's/^  \([a-z0-9_.]*\)$/\1/p' "$work/keys.txt")

has_word() {  # TEXT WORD: does WORD occur, and is it not the beginning of a longer word?
  [[ "$1 " =~ "$2"[^A-Za-z0-9_] ]]
}

declare -A helps=()
help_of() {  # PROGRAM SUBCOMMAND ...: sets `help`; status 1 if there is no such subcommand
  local id="$*"
  if [ -z "${helps[$id]+known}" ]; then
    helps[$id]=$("$@" --help 2>/dev/null) || helps[$id]=
    has_word "${helps[$id]}" "Usage: $id" || helps[$id]=  # an unknown subcommand gets the program's help
  fi
  help=${helps[$id]}
  [ -n "$help" ]
}

declare -A refused=()  # what was said of each configuration, empty where it was accepted
accepts() {  # CONFIG PATH=VALUE ...: is the configuration accepted? Sets `why`.
  local config=$1 set sets=() id="$*"
  shift
  for set in "$@"; do
    [[ $set == device=cuda ]] && set=device=meta  # keys for GPUs are accepted there, too
    sets+=(--set "$set")
  done
  if [[ $config == "$work"/page.json || -z ${refused[$id]+known} ]]; then
    parsed=$((parsed + 1))
    why=$(frugal train "$config" ${sets[0]:+"${sets[@]}"} --print-config 2>&1 >/dev/null) && why=
    [[ $why != 'error: data.dir: found no '* ]] || why=  # the keys are checked by then; the data need not be here
    refused[$id]=$why
  fi
  why=${refused[$id]}
  [ -z "$why" ]
}

# ---- commands
check_frugal() {  # WORDS
  local words=("$@") program=${1##*/} sub=() i word value config="$work/empty.json" with_config=0 sets=() variant
  for ((i = 1; i < ${#words[@]} && i < 3; ++i)); do
    [[ ${words[i]} =~ ^[a-z-]+$ && ${words[i]} != -* ]] || break
    sub+=("${words[i]}")
    [[ ${words[1]} == data || ${words[1]} == bench ]] || break
  done
  help_of "$program" ${sub[0]:+"${sub[@]}"} || { fault "no such command: $program ${sub[*]}"; return; }
  for ((i = 1 + ${#sub[@]}; i < ${#words[@]}; ++i)); do
    word=${words[i]} value=${words[i + 1]:-}
    case $word in
      --*)
        has_word "$help" "${word%%=*}" || fault "$program ${sub[*]} has no option ${word%%=*}"
        case $word in
          --set) [[ $value == *=* ]] && sets+=("$value") || fault "--set expects path=value, got '$value'" ;;
          --variant)
            variant=()
            eval "variant=(${value#*:})"
            accepts "$config" ${variant[0]:+"${variant[@]}"} || fault "--variant \"$value\": $why" ;;
        esac ;;
      configs/*.jsonl)  # data
        [ -f "$word" ] || fault "no such file: $word" ;;
      configs/*)
        [ -f "$word" ] || fault "no such file: $word"
        config=$word with_config=1 ;;
    esac
  done
  [ ${#sets[@]} -gt 0 ] || [ $with_config = 1 ] || return 0
  if [[ " ${words[*]} " == *" --workload "* ]]; then  # its own network and data: only the keys can be checked
    for value in "${sets[@]}"; do
      [ -n "${keys[${value%%=*}]:-}" ] || fault "no such key: ${value%%=*}"
    done
  else
    accepts "$config" ${sets[0]:+"${sets[@]}"} || fault "${words[*]}: $why"
  fi
}

check_command() {  # one line of a script
  local line=$1 part words
  [[ $line != *'$('* && $line != *'`'* ]] || { fault "command substitution cannot be checked: $line"; return; }
  line=${line//' && '/$'\n'}
  line=${line//' | '/$'\n'}
  while IFS= read -r part; do
    words=()
    set -f
    set +u
    eval "words=($part)" 2>/dev/null || { fault "no shell command: $part"; set -u; continue; }
    set -u
    set +f
    while [[ ${words[0]:-} =~ ^[A-Za-z_]+= ]]; do words=("${words[@]:1}"); done
    case ${words[0]:-} in
      '') ;;
      frugal | frugal-lab | */bin/frugal | */bin/frugal-lab) check_frugal "${words[@]}" ;;
      mpirun | srun)  # only the program that it starts is checked
        while [[ ${#words[@]} -gt 0 && ${words[0]} != frugal ]]; do words=("${words[@]:1}"); done
        [ ${#words[@]} -eq 0 ] || check_frugal "${words[@]}" ;;
      tools/* | bench/* | .ci/*)
        [ -x "${words[0]}" ] || { fault "no such program: ${words[0]}"; continue; }
        for word in "${words[@]:1}"; do
          [[ $word == --* && ${words[0]} == *.py ]] || continue
          grep -q -e "\"${word%%=*}\"" "${words[0]}" || fault "${words[0]} has no option ${word%%=*}"
        done ;;
      cmake | ctest)
        for ((i = 1; i < ${#words[@]}; ++i)); do
          [[ ${words[i]} == --preset && ${words[i + 1]:-} != "" ]] || continue
          grep -q "\"name\": *\"${words[i + 1]}\"" CMakePresets.json || fault "no such preset: ${words[i + 1]}"
        done ;;
      cd | export | git | sudo | apt-get | head | build/*) ;;
      *) fault "a command that this test does not know: ${words[0]}" ;;
    esac
  done <<<"$line"
}

check_script() {  # TEXT: lines joined where they end with a backslash, without comments
  local line joined=
  while IFS= read -r line; do
    line=" $line"
    line=${line%%[[:space:]]#[[:space:]]*}  # a comment
    line=${line# }
    line=${line%"${line##*[![:space:]]}"}
    joined+=$line
    if [[ $joined == *\\ ]]; then joined=${joined%\\}; continue; fi
    [ -z "$joined" ] || check_command "$joined"
    joined=
  done <<<"$1"
}

printed=
run_script() {  # TEXT: in the scratch tree, where pages continue what pages before began
  ran=$((ran + 1))
  printed=$(cd "$work/tree" && timeout 60 bash -euo pipefail -c "$1" 2>&1) ||
    fault "the commands failed: $(tail -n 3 <<<"$printed")"
}

check_output() {  # TEXT
  local line pattern squeezed
  squeezed=$(tr -s ' \t-' ' ' <<<"$printed")
  while IFS= read -r line; do
    pattern=${line//+([ $'\t'-])/ }
    pattern=${pattern# } pattern=${pattern% }
    [[ $pattern =~ [A-Za-z0-9] ]] || continue
    if [[ $pattern == *[]\\*?[]* ]]; then pattern=$(sed -E 's/[]\\*?[]/\\&/g' <<<"$pattern"); fi
    pattern=${pattern//?( )...?( )/*}
    # shellcheck disable=SC2053
    local found=0 candidate
    while IFS= read -r candidate; do
      [[ $candidate == *$pattern* ]] && { found=1; break; }
    done <<<"$squeezed"
    [ $found = 1 ] || fault "not printed: $line"
  done <<<"$1"
}

python_parses() {  # TEXT; anything where there is no Python
  ! command -v python3 >/dev/null || python3 -c 'import ast, sys; ast.parse(sys.stdin.read())' 2>/dev/null <<<"$1"
}

check_python_files() {  # TEXT
  local file
  while IFS= read -r file; do
    [ -z "$file" ] || [ -e "$file" ] || fault "no such file: $file"
  done < <(grep -o -E '"(configs|examples)/[A-Za-z0-9_./-]+"' <<<"$1" | tr -d '"')
}

# ---- links to headings
declare -A anchors=()
has_anchor() {  # PAGE ANCHOR: headings become anchors as GitHub makes them
  if [ -z "${anchors[$1]+known}" ]; then
    anchors[$1]=$(sed -n 's/^#\{1,\} //p' "$1" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g')
  fi
  [[ $'\n'${anchors[$1]}$'\n' == *$'\n'"$2"$'\n'* ]]
}

# ---- inline code
source_names=$(find . -path ./build -prune -o -type f \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print |
  sed 's|.*/||' | sort -u)
# Where options are written.
sources=$(grep -r -h -o -E -e '--[a-z][A-Za-z0-9_-]*' --include=*.cpp --include=*.sh --include=*.py apps tools bench | sort -u)
check_inline() {  # TEXT between backticks
  local text=$1 word key
  case $text in
    frugal\ [a-z]* | frugal-lab\ [a-z]*)
      [[ $text =~ [A-Z]{2} || $text == *...* ]] && text=$(sed -E 's/ ?(\.\.\.|[A-Z_]{2,}[A-Z_.]*)//g' <<<"$text")
      check_script "$text"
      return ;;
    --[a-z]*)
      word=${text%% *} word=${word%%=*}
      has_word "$sources" "$word" || [[ $word == --preset || $word == --no-skip ]] || fault "no such option: $word"
      if [[ $text == --set\ [a-z]*=* ]]; then check_key "${text#--set }"; fi
      return ;;
  esac
  if [[ $text =~ ^(model|data|optim|schedule|compression|train|distributed)\.[a-z0-9_.]+(=[^\ ]*)?$ ]]; then
    [[ $text == *.[jhcp]* && -e $text ]] || check_key "$text"
  elif [[ $text =~ ^(configs|tools|bench|docs|core|ops|autograd|compress|optim|models|data|distributed|train|apps|python|tests|examples|cmake)/[A-Za-z0-9_./*+-]+$ &&
    ! $text =~ [A-Z]{3} ]]; then
    compgen -G "$text" >/dev/null || compgen -G "$text*" >/dev/null || fault "no such file: $text"
  elif [[ $text =~ ^[a-z0-9_]+\.(cpp|h|cu|cuh)$ ]]; then
    [[ $'\n'$source_names$'\n' == *$'\n'"$text"$'\n'* ]] || fault "no such file: $text"
  fi
}

check_key() {  # PATH or PATH=VALUE
  local key=${1%%=*}
  key=${key%.}
  [ -n "${keys[$key]:-}${sections[$key]:-}" ] || fault "no such key: $key"
}

# ---- pages
for page in "${pages[@]}"; do
  [ -f "$page" ] || { fault "no such page"; continue; }
  folder=$(dirname "$page")
  at=0 begin=0 fence= info= block= last=
  while IFS= read -r line || [ -n "$line" ]; do
    at=$((at + 1))
    if [ -n "$fence" ]; then
      if [[ $line != '```'* ]]; then block+=$line$'\n'; continue; fi
      here=$at at=$begin fence=
      case $info in
        'sh run') check_script "$block"; run_script "$block" ;;
        sh) check_script "$block" ;;
        json)
          printf '%s' "$block" >"$work/page.json"
          accepts "$work/page.json" || fault "$why" ;;
        text) [[ $last == 'sh run' ]] && check_output "$block" ;;
        python)
          python_parses "$block" || fault "Python does not parse the block"
          check_python_files "$block" ;;
        cpp | cmake | csv | jsonl | '') ;;
        *) fault "a kind of block that this test does not know: $info" ;;
      esac
      at=$here last=$info
      continue
    fi
    if [[ $line == '```'* ]]; then
      fence=1 begin=$at info=${line#'```'} block=
      continue
    fi
    rest=$line
    while [[ $rest =~ \]\(([^\)]*)\)(.*) ]]; do
      whole=${BASH_REMATCH[1]} rest=${BASH_REMATCH[2]}
      target=${whole%%#*}
      [[ $target == *://* || $target == mailto:* ]] && continue
      linked=$page
      [ -z "$target" ] || linked=$folder/$target
      [ -e "$linked" ] || { fault "a link to nothing: $target"; continue; }
      [[ $whole != *#* || $linked != *.md ]] || has_anchor "$linked" "${whole#*#}" ||
        fault "a link to no heading: $whole"
    done
    rest=$line
    while [[ $rest =~ \`([^\`]*)\`(.*) ]]; do
      code=${BASH_REMATCH[1]} rest=${BASH_REMATCH[2]}
      check_inline "$code"
    done
  done <"$page"
  [ -z "$fence" ] || fault "a block that does not end"
done

echo "${#pages[@]} pages, $ran scripts run, $parsed configurations parsed, $faults faults"
[ $faults = 0 ]
