#!/usr/bin/env bash
# `frugal train` on several ranks, as a user starts it: the folder of a run, ranks that die, hang or fail, signals, and
# ranks on two hosts (network namespaces).
# usage: ranks_test.sh MPIEXEC NUMPROC_FLAG FRUGAL PART     PART: train, kill or namespaces
# RANKS_SEED sets what is random.
set -euo pipefail
mpiexec=$1 flag=$2 program=$3 part=$4
export OMP_NUM_THREADS=1
limit=120  # seconds until a job counts as one that hangs
here=$(mktemp -d "${TMPDIR:-/tmp}/frugal_ranks_XXXXXX")
clean_up= started=
trap 'kill $started 2>/dev/null || true; $clean_up; rm -rf "$here"' EXIT
cd "$here"
trap 'echo "line $LINENO: $BASH_COMMAND failed"' ERR

fail() { printf '%s\n' "$*"; exit 1; }
expect() { [[ $out == *"$1"* ]] || fail "$what: expected output with '$1', got: $out"; }
expect_not() { [[ $out != *"$1"* ]] || fail "$what: expected no output with '$1', got: $out"; }
expect_code() { [ "$code" -eq "$1" ] || fail "$what: expected exit status $1, got $code: $out"; }
expect_failure() {
  [ "$code" -ne 124 ] || fail "$what: the job hangs: $out"
  [ "$code" -ne 0 ] || fail "$what: expected a failure, got exit status 0: $out"
}
same() {  # FILE FOLDER FOLDER
  cmp "$2/$1" "$3/$1" || fail "$what: $1 differs"
}
# Lines of type "memory" count allocations. After a resume these are others, because the buckets of gradients are arranged anew.
same_metrics() {  # FOLDER FOLDER
  cmp <(grep -v '"type":"memory"' "$1/metrics.jsonl") <(grep -v '"type":"memory"' "$2/metrics.jsonl") ||
    fail "$what: metrics.jsonl differs"
}
job() {  # RANKS COMMAND...: mpirun, which knows the ranks' processes by files pid.RANK
  local ranks=$1
  shift
  rm -f pid.*
  what="$ranks ranks: $*"
  code=0
  out=$(timeout $limit "$mpiexec" "$flag" "$ranks" ./with_pid "$@" 2>&1) || code=$?
}
begin() {  # RANKS COMMAND...: the same in the background
  local ranks=$1
  shift
  rm -f pid.*
  what="$ranks ranks: $*"
  : >output
  timeout $limit "$mpiexec" "$flag" "$ranks" ./with_pid "$@" >output 2>&1 &
  started=$!
}
finish() {
  code=0
  wait "$started" 2>wait || code=$?
  out=$(<output) started=
}
train() { job "$1" "$program" train "${@:2}" --quiet; }  # RANKS CONFIG ARGUMENTS...
lines() { { cat "$1/metrics.jsonl" 2>none || true; } | wc -l; }
wait_for_lines() {  # FOLDER LINES; fails if the job ends before
  local i
  for ((i = 0; i < 20 * limit; i++)); do
    [ "$(lines "$1")" -lt "$2" ] || return 0
    kill -0 "$started" 2>none || return 1
    sleep 0.01
  done
  return 1
}
all_started() {  # RANKS; fails if the job ends before
  local i
  for ((i = 0; i < 20 * limit; i++)); do
    [ "$(ls pid.* 2>none | wc -l)" -lt "$1" ] || return 0
    kill -0 "$started" 2>none || return 1
    sleep 0.01
  done
  return 1
}
lives() {  # PID; one that has ended is a zombie until its parent asks for its exit status
  local text
  text=$(cat "/proc/$1/stat" 2>none) && [[ $text != *") Z "* ]]
}
ranks_end() {  # RANKS: all processes of the job end soon, if need be because they wait for each other no longer
  local i r left
  for ((i = 0; i < 600; i++)); do
    left=
    for ((r = 0; r < $1; r++)); do
      if lives "$(<pid.$r)"; then left+=" $r"; fi
    done
    [ -n "$left" ] || return 0
    sleep 0.1
  done
  for r in $left; do kill -9 "$(<pid.$r)" 2>none || true; done
  fail "$what: ranks$left live on"
}
mpirun_ends() {  # After its ranks. Open MPI 4 may live on if a rank is killed while that rank connects to it.
  local i
  for ((i = 0; i < 300; i++)); do
    kill -0 "$started" 2>none || return 0
    sleep 0.1
  done
  echo "$what: all ranks ended, but mpirun lives on after 30 seconds and is killed"
  kill -9 $(pgrep -P "$started") 2>none || true
}
no_leftovers() {  # FOLDER: names of files that were begun and not ended
  local found
  found=$(find "$1" -type f | grep -vE '/(config|input|tensor_times|summary)\.json$|/metrics\.(jsonl|csv)$|/report\.html$|/checkpoint/(seconds|(state|last|best)\.safetensors)$' || true)
  [ -z "$found" ] || fail "$what: expected files of a run alone, got $found"
}

cat >with_pid <<'END'
#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
echo $$ >pid.$rank.new && mv pid.$rank.new pid.$rank
exec "$@"
END
cat >on_rank <<'END'
#!/usr/bin/env bash
# usage: on_rank RANK ARGUMENTS... -- COMMAND: COMMAND, on one rank with ARGUMENTS
mine=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}} rank=$1 more=()
shift
while [ "$1" != -- ]; do more+=("$1") && shift; done
shift
[ "$mine" != "$rank" ] || exec "$@" "${more[@]}"
exec "$@"
END
chmod +x with_pid on_rank

# The last batch of an epoch has 5 samples.
cat >mlp.json <<'END'
{"seed": 5,
 "model": {"name": "mlp", "hidden": [48, 32], "dropout": 0.2},
 "data": {"name": "random", "shape": [6, 6, 1], "classes": 4, "train_samples": 107, "test_samples": 20, "batch_size": 27},
 "optim": {"name": "adamw", "lr": 0.002},
 "compression": {"bits": 2.5, "advanced": {"min_elements": 16, "group_size": 32}},
 "train": {"epochs": 80, "checkpoint_interval": 3, "log_interval": 1},
 "distributed": {"sharding": "optimizer", "timeout": 30}}
END
sed 's/"epochs": 80/"epochs": 50000/' mlp.json >long.json
cat >resnet.json <<'END'
{"seed": 3,
 "model": {"name": "resnet20", "width": 4},
 "data": {"name": "random", "shape": [8, 8, 3], "classes": 3, "train_samples": 26, "test_samples": 10, "batch_size": 8},
 "optim": {"name": "sgd", "lr": 0.02},
 "compression": {"bits": 0},
 "train": {"epochs": 2, "checkpoint_interval": 3, "log_interval": 1}}
END

close_metrics() {  # FOLDER FOLDER BOUND: the losses of all steps and epochs are equal but for BOUND
  paste -d '\n' "$1/metrics.jsonl" "$2/metrics.jsonl" | awk -v bound="$3" -v side=0 '
    !/"type":"(step|epoch)"/ { next }
    { n = 0
      while (match($0, /"(loss|train_loss|test_loss|lr)":[^,}]*/)) {
        text = substr($0, RSTART, RLENGTH); sub(/.*:/, "", text); value[side, n++] = text + 0
        $0 = substr($0, RSTART + RLENGTH)
      } }
    side == 0 { side = 1; first = n; next }
    { side = 0
      if (n != first) { print "different lines"; failed = 1; exit 1 }
      for (i = 0; i < n; i++) {
        d = value[0, i] - value[1, i]
        if (d < 0) d = -d
        if (d > bound) { print "losses differ by " d; failed = 1; exit 1 }
        compared++
      } }
    END { if (!failed && compared < 20) { print "compared " compared + 0 " numbers"; exit 1 } }' ||
    fail "$what: the metrics of $1 and $2 differ"
}

case $part in
train)
  # ---- The folder of a run
  "$program" train resnet.json --out one --quiet >none
  train 2 resnet.json --out two
  expect_code 0
  [ "$(cd one && find . | sort)" = "$(cd two && find . | sort)" ] || fail "$what: expected the files of one process, got $(find two)"
  no_leftovers two
  close_metrics one two 1e-3
  grep -A 2 '"ranks": {' two/summary.json | grep -q '"ranks": 2' || fail "$what: summary.json does not name the ranks"
  ! grep -q '"ranks"' one/summary.json || fail "one process: summary.json names ranks"
  same config.json one two
  ! grep -q ranks two/config.json || fail "$what: config.json names ranks"
  out=$("$program" eval two 2>&1) || fail "eval of a run of two ranks: $out"
  what="eval of a run of two ranks" expect "samples 10"

  # ---- A run goes on with other ranks, and with another sharding
  train 3 mlp.json --out whole
  expect_code 0
  grep -Eq '"packed_bytes": [1-9]' whole/summary.json || fail "$what: nothing was compressed"
  for next in 2 1; do
    rm -rf three
    begin 3 "$program" train mlp.json --out three --quiet
    wait_for_lines three 20 && kill -9 "$(<pid.1)" 2>none || fail "$what: ended early"
    finish
    expect_failure
    train $next mlp.json --out three --resume --set distributed.sync_batch_norm=false
    expect_code 2
    expect "distributed.sync_batch_norm: the run in three was made with another value"
    sharding=$([ $next = 2 ] && echo none || echo optimizer)
    train $next mlp.json --out three --resume --set distributed.sharding=$sharding
    expect_code 0
    [ $next = 2 ] || expect_not "rank"
    [ "$(lines three)" = "$(lines whole)" ] || fail "$what: expected $(lines whole) lines of metrics.jsonl, got $(lines three)"
    grep -q '"steps": 320' three/summary.json || fail "$what: expected 320 steps in summary.json"
  done

  # ---- The queue of MoCo takes the keys of all ranks. The last batch has 2 samples, fewer than 3 ranks.
  sed 's/"name": "resnet20"/"name": "moco_v2", "trunk": "resnet20", "layers": 8, "projector": [16, 8], "queue": 20/
       s/"epochs": 2/"epochs": 3/' resnet.json >moco.json
  "$program" train moco.json --out moco --quiet >none
  for ranks in 2 3; do
    train $ranks moco.json --out moco$ranks
    expect_code 0
    close_metrics moco moco$ranks 2e-3
  done

  # ---- A run with a budget goes on, with as many ranks and with one
  sed 's/"bits": 0/"memory_budget": "3\/4 activations"/' resnet.json >budget.json
  train 2 budget.json --out budget
  expect_code 0
  epochs=2
  for next in 2 1; do
    train $next budget.json --out budget --resume --extend $((++epochs))
    expect_code 0
  done

  # ---- Signals. One rank stands still, so that the run does not end before they come.
  rm -rf run
  begin 3 "$program" train mlp.json --out run --quiet
  wait_for_lines run 10 || { finish; fail "$what: ended early: $out"; }
  kill -STOP "$(<pid.1)"
  kill -TERM $(cat pid.0 pid.1 pid.2)
  kill -CONT "$(<pid.1)"
  finish
  expect_failure
  expect "rank 0: error: terminated at step "
  expect "the checkpoint is in run/checkpoint. The same command with --resume goes on from it"
  expect_not "nothing was saved"
  no_leftovers run
  train 3 mlp.json --out run --resume
  expect_code 0
  same checkpoint/last.safetensors run whole
  same_metrics run whole
  # SIGUSR1, which mpirun hands on.
  rm -rf run
  begin 3 "$program" train mlp.json --out run --quiet
  wait_for_lines run 10 || { finish; fail "$what: ended early: $out"; }
  kill -USR1 "$(pgrep -P "$started" | head -n 1)"
  finish
  expect_failure
  expect "rank 0: error: stopped by SIGUSR1 at step "
  expect "the checkpoint is in run/checkpoint. The same command with --resume goes on from it"
  no_leftovers run
  train 3 mlp.json --out run --resume
  expect_code 0
  same checkpoint/last.safetensors run whole
  same_metrics run whole
  # Ctrl-C: Open MPI 4 sends SIGTERM after so many seconds, and SIGKILL when they have passed again. Open MPI 5 has no
  # such option that has an effect, and kills its ranks a quarter of a second later.
  rm -rf run
  export OMPI_MCA_odls_base_sigkill_timeout=3
  begin 3 "$program" train long.json --out run --quiet
  wait_for_lines run 10 || { finish; fail "$what: ended early: $out"; }
  kill -INT "$(pgrep -P "$started" | head -n 1)"
  finish
  unset OMPI_MCA_odls_base_sigkill_timeout
  expect_failure
  if ! "$mpiexec" --version | grep -q "(Open MPI) [5-9]"; then
    expect "the checkpoint is in run/checkpoint. The same command with --resume goes on from it"
    no_leftovers run
  fi
  before=$(lines run)
  begin 3 "$program" train long.json --out run --quiet --resume
  wait_for_lines run $((before + 10)) || { finish; fail "$what: does not go on: $out"; }
  kill -9 "$(<pid.2)"
  finish
  expect_failure

  # ---- A rank that fails
  for rank in 0 1; do
    rm -rf run
    job 3 ./on_rank $rank --set memory_limit=40000 -- "$program" train mlp.json --out run --quiet
    expect_code 1
    expect "rank $rank: error: out of memory"
    [ ! -e run ] || no_leftovers run
    [ ! -e run/checkpoint/state.safetensors ] || fail "$what: expected no checkpoint"
    train 3 mlp.json --out run --resume
    expect_code 0
    same checkpoint/last.safetensors run whole
    same_metrics run whole
  done

  # ---- Not the same on all ranks
  job 3 ./on_rank 2 --set optim.lr=0.1 -- "$program" train mlp.json --out other --quiet
  expect_code 2
  expect "optim.lr: expected one configuration on all ranks, but that of rank 2 differs from that of rank 0 here"
  [ ! -e other ] || fail "$what: expected no folder"
  for ((i = 0; i < 40; i++)); do echo "$((i % 7)).5,$((i * i % 11)),$((i % 3))"; done >first.csv
  sed '3s/^[0-9]/9/' first.csv >second.csv
  cat >csv.json <<'END'
{"model": {"name": "mlp", "hidden": [8]}, "data": {"name": "csv", "dir": "data", "target": "label", "batch_size": 40}, "compression": {"bits": 0}, "train": {"epochs": 2}}
END
  for side in first second; do
    mkdir -p $side/data
    { echo a,b,label && cat $side.csv; } >$side/data/train.csv
    cp $side/data/train.csv $side/data/test.csv
  done
  cat >from <<END
#!/usr/bin/env bash
rank=\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}
[ "\$rank" = 1 ] && cd "$here/\$1" || cd "$here/first"
shift
exec "\$@"
END
  chmod +x from
  mkdir -p nowhere
  job 2 ./from first "$program" train "$here/csv.json" --out "$here/csv" --quiet
  expect_code 0
  out=$("$program" predict csv first/data/test.csv 2>&1) || fail "predict by a run of two ranks: $out"
  what="predict by a run of two ranks" expect "first/data/test.csv:2"
  rm -rf csv
  job 2 ./from second "$program" train "$here/csv.json" --out "$here/csv" --quiet
  expect_code 1
  expect "expected equal values on all ranks, but 'the first batch's input' of rank 1 differs from that of rank 0"
  [ ! -e csv/config.json ] || fail "$what: expected no run"
  rm -rf csv
  job 2 ./from nowhere "$program" train "$here/csv.json" --out "$here/csv" --quiet
  expect_failure
  expect "rank 1: error: "
  expect "\"data\", which is not there"
  [ ! -e csv/config.json ] || fail "$what: expected no run"
  train 4 mlp.json --out other --set optim.lrr=0.1
  expect_code 2
  expect "rank 0: error: optim.lrr: unknown key"
  [ "$(grep -c "optim.lrr: unknown key" <<<"$out")" -le 2 ] || fail "$what: expected the message once, got: $out"

  # ---- Numbers that are not finite
  rm -rf run
  train 3 mlp.json --out run --set optim.name=sgd --set optim.lr=10000 --set train.eval_interval=1000
  expect_code 1
  expect "error: [train] step "
  expect "The last checkpoint is kept"
  no_leftovers run
  [ "$(grep -o '\[train\] step [0-9]*' <<<"$out" | sort -u | wc -l)" = 1 ] || fail "$what: ranks stop at different steps: $out"
  step=$(grep -o '\[train\] step [0-9]*' <<<"$out" | head -n 1 | grep -o '[0-9]*$')
  [ "$step" -gt 3 ] || fail "$what: expected a checkpoint before the failure at step $step"
  out=$("$program" inspect run/checkpoint/last.safetensors 2>&1) || fail "$what: the last checkpoint is damaged: $out"

  # ---- What uses one process
  job 2 "$program" eval whole
  expect_code 2
  expect "eval: expected one process, got one of 2"
  what="PMI_SIZE=2 without mpirun" code=0
  out=$(env PMI_SIZE=2 timeout $limit "$program" train mlp.json --out alone --quiet 2>&1) || code=$?
  expect_code 1
  expect "expected 2 ranks, as PMI_SIZE of the environment says, but "
  [ ! -e alone ] || fail "$what: expected no folder"
  ;;

kill)
  seed=${RANKS_SEED:-$RANDOM}
  echo "seed $seed"
  RANDOM=$seed
  ranks=3 wanted=${RANKS_KILLS:-21} kills=0 chains=0 at=
  train $ranks mlp.json --out whole
  expect_code 0
  grep -Eq '"packed_bytes": [1-9]' whole/summary.json || fail "$what: nothing was compressed"
  # A chain is one run that is killed and goes on until it ends.
  while [ $kills -lt $wanted ]; do
    chains=$((chains + 1))
    [ $chains -le 20 ] || fail "only $kills kills in $chains runs"
    rm -rf run
    while :; do
      before=$(lines run)
      begin $ranks "$program" train mlp.json --out run --resume --quiet
      victim=$((kills % ranks))
      if all_started $ranks && [ $kills -lt $wanted ]; then
        # Half of the kills come at any time, the others after some more steps.
        if ((RANDOM % 3 == 0)); then
          sleep "0.$(printf %03d $((RANDOM % 700)))"
        else
          wait_for_lines run $((before + 1 + RANDOM % 80)) || true
          sleep "0.0$(printf %02d $((RANDOM % 30)))"
        fi
        kill -9 "$(<pid.$victim)" 2>none || true
        ranks_end $ranks
        mpirun_ends
      fi
      finish
      [ $code -ne 0 ] || break
      [ $code -ne 124 ] || fail "$what: the job hangs after rank $victim was killed: $out"
      [ $kills -lt $wanted ] || fail "$what: expected a run that ends, got exit status $code: $out"
      kills=$((kills + 1))
      at+=" $victim@$(lines run)"
    done
    same checkpoint/last.safetensors run whole
    same_metrics run whole
    no_leftovers run
  done
  echo "killed $kills times in $chains runs, RANK@LINES of metrics.jsonl:$at"

  # ---- mpirun itself
  rm -rf run
  begin $ranks "$program" train mlp.json --out run --quiet
  wait_for_lines run 10 || { finish; fail "$what: ended early: $out"; }
  kill -9 "$(pgrep -P "$started" | head -n 1)"
  finish
  expect_failure
  ranks_end $ranks
  train $ranks mlp.json --out run --resume
  expect_code 0
  same checkpoint/last.safetensors run whole
  same_metrics run whole
  no_leftovers run

  # ---- A rank that answers no more
  for victim in 0 1; do
    rm -rf run
    begin $ranks "$program" train long.json --out run --quiet --set distributed.timeout=3
    wait_for_lines run 10 || { finish; fail "$what: ended early: $out"; }
    kill -STOP "$(<pid.$victim)"
    seconds=$SECONDS
    finish
    kill -CONT "$(<pid.$victim)" 2>none || true
    expect_failure
    [ $((SECONDS - seconds)) -le 30 ] || fail "$what: took $((SECONDS - seconds)) seconds to end"
    expect "[distributed] waited 3."
    # Where it was to take what another one sends, that one says so.
    grep -Eq "nothing (came from|was taken by) ranks? .*$victim" <<<"$out" || fail "$what: expected the name of rank $victim, got: $out"
    ranks_end $ranks
  done
  ;;

namespaces)
  unable() { echo "left out: $1"; exit 0; }
  [ "$(id -u)" = 0 ] || unable "network namespaces need root"
  [ -n "$(command -v ip)" ] || unable "this machine has no ip"
  id=fr$$
  first=${id}a second=${id}b
  clean_up=remove_namespaces
  remove_namespaces() {
    ip netns del $first 2>/dev/null || true
    ip netns del $second 2>/dev/null || true
  }
  ip netns add $first 2>why && ip netns add $second 2>why || unable "network namespaces are not allowed: $(<why)"
  ip link add ${id}v netns $first type veth peer name ${id}v netns $second 2>why ||
    unable "a pair of network interfaces cannot be made: $(<why)"
  number=1
  for space in $first $second; do
    ip -n $space link set lo up
    ip -n $space addr add 10.111.7.$number/24 dev ${id}v
    ip -n $space link set ${id}v up
    number=$((number + 1))
  done
  cat >agent <<END
#!/usr/bin/env bash
# What ssh would do: runs a command on the other host.
shift
exec ip netns exec $second bash -c "\$*"
END
  chmod +x agent
  train 2 mlp.json --out near --set train.epochs=10
  expect_code 0
  what="two namespaces" code=0
  cat >where <<'END'
#!/usr/bin/env bash
ip -br addr show scope global | awk '{print $3}' >host.${OMPI_COMM_WORLD_RANK}
exec "$@"
END
  chmod +x where
  out=$(env -u OMPI_MCA_plm_rsh_agent timeout $limit ip netns exec $first "$mpiexec" \
    --mca plm rsh --mca plm_rsh_agent "$here/agent" --mca plm_rsh_no_tree_spawn 1 \
    --mca btl tcp,self --mca btl_tcp_if_include 10.111.7.0/24 --mca oob_tcp_if_include 10.111.7.0/24 \
    --host 10.111.7.1:1,10.111.7.2:1 "$flag" 2 ./where "$program" train mlp.json --out far --quiet --set train.epochs=10 2>&1) || code=$?
  expect_code 0
  [ "$(<host.0) $(<host.1)" = "10.111.7.1/24 10.111.7.2/24" ] ||
    fail "$what: expected a rank in each, got $(<host.0) and $(<host.1)"
  same checkpoint/last.safetensors near far
  same_metrics near far
  ;;
*) fail "expected train, kill or namespaces, got $part" ;;
esac
echo "$part: all as expected"
