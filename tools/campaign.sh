#!/usr/bin/env bash
# Tries to break the program for hours: mutants of files, calls that fail, ends at any call, power cuts, sanitizers, and
# networks that are drawn and computed in two ways.
# usage: tools/campaign.sh [PART ...] [--hours H] [--executions N] [--seed S] [--reader NAME ...]
#   fuzz        libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer on every reader of files (needs clang-19)
#   fuzz-fast   the same readers without sanitizers: several times as many inputs. Those that reach something new lie where
#               fuzz begins, so that it executes them, too
#   failures    every call on a file, thread, mapping and operator new of a training and of what reads a run fails once
#   kills       the process ends before each call on a file, and 1,000 runs of all kinds are killed at any moment, also
#               one of several ranks: each run goes on to the same bits
#   power       a power cut after each change of a file, and the run goes on to the same bits
#   differential  500 networks that are drawn: beside PyTorch (if python3-torch is there), f32 beside f64, whole beside
#               rebuilt, one thread beside two, the plan beside a training, ONNX (python3-onnx) beside the program
#   sanitizers  the whole suite under AddressSanitizer and UndefinedBehaviorSanitizer
#   long        1,230,000 steps of tiny networks: memory, descriptors, threads, the time of a step and files stay as they are
#   threads     what has threads under ThreadSanitizer: tests of the libraries, trainings with workers, a file for
#               activations and several ranks (needs clang-19 and libomp-19-dev)
#   coverage    which lines of data, compress and train their tests execute, and which errors no test reached
# Without a part: fuzz, failures, kills, power and differential. --hours: how long fuzz takes in all (1). --executions: fuzz
# leaves a reader that has had so many, those of earlier calls included. What it finds lies in build/campaign, also the
# inputs from which the next call goes on. docs/design/reliability.md says what is promised, and has the figures of the
# last campaign.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usage() { sed -n '4,24s/^# \{0,1\}//p' "$0"; exit "$1"; }
hours=1; executions=0; seed=1; parts=(); readers=()
while [ $# -gt 0 ]; do
  case $1 in
    --hours|--executions|--seed|--reader)
      [ $# -ge 2 ] || { echo "campaign.sh: expected a value behind $1" >&2; exit 2; }
      case $1 in --hours) hours=$2 ;; --executions) executions=$2 ;; --seed) seed=$2 ;; *) readers+=("$2") ;; esac
      shift ;;
    -h|--help) usage 0 ;;
    fuzz|fuzz-fast|failures|kills|power|differential|long|sanitizers|threads|coverage) parts+=("$1") ;;
    *) echo "campaign.sh: unknown part '$1'" >&2; usage 2 >&2 ;;
  esac
  shift
done
[[ $hours =~ ^[0-9]+([.][0-9]+)?$ ]] || { echo "campaign.sh: --hours expects a number, got '$hours'" >&2; exit 2; }
for number in "--seed $seed" "--executions $executions"; do
  [[ ${number#* } =~ ^[0-9]{1,18}$ ]] || { echo "campaign.sh: ${number% *} expects a whole number, got '${number#* }'" >&2; exit 2; }
done
[ ${#parts[@]} -gt 0 ] || parts=(fuzz failures kills power differential)
out=$PWD/build/campaign
mkdir -p "$out"
wrong=0

# How many inputs a reader has had in a part, over all calls.
executed() {  # PART READER
  cat "$out/fuzz/$2/executions${1#fuzz}" 2>/dev/null || echo 0
}

# One reader for SECONDS; prints a line of what it did.
fuzz_reader() {  # PART PROGRAM READER SECONDS
  local part=$1
  shift
  local folder=$out/fuzz/$2 log=$out/fuzz/$2.log before most=-1
  mkdir -p "$folder/corpus" "$folder/found"
  before=$(executed "$part" "$2")
  [ "$executions" -eq 0 ] || most=$((executions - before))
  FRUGAL_FUZZ_READER=$2 FRUGAL_FUZZ_SEEDS=$folder "$1" >/dev/null 2>&1
  local words=()
  [ ! -s "$folder/words" ] || words=(-dict="$folder/words")
  # Another seed at each call: the one of the call before would draw the mutants that it drew.
  if FRUGAL_FUZZ_READER=$2 FRUGAL_LOG=off OMP_NUM_THREADS=1 "$1" "$folder/corpus" "$folder/seeds" \
      "${words[@]}" -seed=$(((seed + before) % 2147483648)) -runs="$most" -max_total_time="$3" -max_len=16384 -timeout=20 \
      -malloc_limit_mb=1024 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix="$folder/found/" >"$log" 2>&1; then
    result=ok
  else
    result="FOUND, see $log"; wrong=1
  fi
  local runs edges
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  edges=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$log" | tail -n 1)
  echo $((before + ${runs:-0})) >"$folder/executions${part#fuzz}"
  printf '%-36s %12s executions %12s in all %7s edges %6s s  %s\n' "$2" "${runs:-?}" "$(executed "$part" "$2")" "${edges:-?}" "$3" "$result"
}

fuzz() {  # PART, which is also the preset
  command -v clang++-19 >/dev/null || { echo "campaign.sh: fuzz needs clang++-19: apt-get install clang-19" >&2; exit 1; }
  [ -d "build/$1" ] || cmake --preset "$1" >"$out/configure.log"
  cmake --build --preset "$1" --target fuzz_data fuzz_apps
  local -a all=() programs=()
  local program name found=0
  for program in "build/$1/bin/fuzz_data" "build/$1/bin/fuzz_apps"; do
    while IFS= read -r name; do
      [ ${#readers[@]} -eq 0 ] || [[ " ${readers[*]} " == *" $name "* ]] || continue
      found=1
      [ "$executions" -eq 0 ] || [ "$(executed "$1" "$name")" -lt "$executions" ] || continue
      all+=("$name"); programs+=("$program")
    done < <("$program" 2>/dev/null)
  done
  [ $found -eq 1 ] || { echo "campaign.sh: no reader is named '${readers[*]}'" >&2; exit 2; }
  [ ${#all[@]} -gt 0 ] || { echo "Each reader has had $executions inputs."; return; }
  local seconds
  seconds=$(awk "BEGIN { s = int($hours * 3600 / ${#all[@]}); print s < 1 ? 1 : s }")
  echo "Fuzzing ${#all[@]} readers, $seconds s each:"
  local i
  for i in "${!all[@]}"; do fuzz_reader "$1" "${programs[i]}" "${all[i]}" "$seconds"; done
}

broken() {  # SCRIPT ARGUMENT ...
  tools/build.sh release frugal frugal_watched_calls
  /usr/bin/python3 -B "tests/campaign/$1" build/release/bin/frugal build/release/lib/libfrugal_watched_calls.so \
    --seed "$seed" "${@:2}" || wrong=1
}

differential() {
  tools/build.sh release frugal
  OMP_NUM_THREADS=1 /usr/bin/python3 -B tests/campaign/differential.py build/release/bin/frugal --networks 500 --zoo 50 \
    --seed "$seed" || wrong=1
}

long() {
  tools/build.sh release frugal
  /usr/bin/python3 -B tests/campaign/long.py build/release/bin/frugal || wrong=1
}

sanitized() {  # PRESET CTEST_ARGUMENT ...
  PRESET=$1 tools/test.sh "${@:2}" || wrong=1
  tests/sanitizers/reports.sh show "build/$1/reports" || wrong=1
}

coverage() {
  tools/setup.sh gcovr
  tools/build.sh coverage test_data test_compress test_train
  local folder=build/coverage name
  find "$folder" -name '*.gcda' -delete
  # With one thread: where several count one line, they wait for each other.
  for name in data compress train; do OMP_NUM_THREADS=1 "$folder/bin/test_$name" >"$out/coverage_$name.log" || wrong=1; done
  gcovr --root . --filter data/ --filter compress/ --filter train/ --json "$out/coverage.json" "$folder/CMakeFiles"
  /usr/bin/python3 -B tests/campaign/coverage.py "$out/coverage.json" data compress train | tee "$out/coverage.txt"
}

# clang's OpenMP keeps a file for each process, and leaves it where the process is killed (findings/libomp_shared_files.sh).
remove_left_files() {
  local file number
  for file in /dev/shm/__KMP_REGISTERED_LIB_*; do
    number=${file#*_LIB_}
    [ ! -O "$file" ] || [ -e "/proc/${number%%_*}" ] || rm -f "$file"
  done
}
trap remove_left_files EXIT

for part in "${parts[@]}"; do
  echo "== $part"
  case $part in
    fuzz|fuzz-fast) fuzz "$part" ;;
    failures) broken campaign.py --part failures --part readers ;;
    kills)
      broken campaign.py --part kills
      broken kills.py --kills 1000
      ;;
    differential) differential ;;
    long) long ;;
    sanitizers) sanitized dev ;;
    coverage) coverage ;;
    threads) sanitized tsan -R '^(core|ops|autograd|compress|optim|data|train|distributed.*|ranks_train|threads)$' ;;
    *) broken campaign.py --part "$part" ;;
  esac
done
exit $wrong
