#!/usr/bin/env bash
# Open MPI kills its ranks soon after Ctrl-C: 4.1.4 gives them a second from SIGTERM on and an option for more; 5.0.7
# gives a quarter of a second, and its option of that name has no effect.
# Seen: SIGINT for mpirun; the ranks get SIGTERM after 1.0 s (5.0.7: 0.25 s) and SIGKILL after 2.0 s (0.5 s). With
# odls_base_sigkill_timeout=3: SIGTERM after 3 s and no SIGKILL before 5 s (5.0.7: 0.25 s and 0.5 s, as without it).
# Frugal: docs/guide/distributed.md says so, and how SIGUSR1 stops a run; tests/apps/ranks_test.sh.
. "$(dirname "$0")/packages.sh"
packages bookworm 'openmpi-bin=4.1.4*' perl-base
packages trixie 'openmpi-bin=5.0.7*' perl-base

# A rank that minds no signal, and notes when it got one and how long it lived.
cat >"$work/rank.pl" <<'END'
sub now { open my $f, '<', '/proc/uptime'; (split ' ', <$f>)[0] }
open my $out, '>', $ARGV[0]; select $out; $| = 1;
for my $name (qw(INT TERM)) { $SIG{$name} = sub { printf "%.2f SIG$name\n", now(); } }
for (my $end = now() + 6; now() < $end; select undef, undef, undef, 0.01) { printf "%.2f lives\n", now(); }
END

seconds() { printf '%d.%02d' $(($1 / 100)) $(($1 % 100)); }

interrupt() {  # SUITE [OPTION...]: sets `term` and `life`, in hundredths of a second after SIGINT
  local suite=$1 log=$work/$1/tmp/log i
  shift
  rm -f "$log"
  cp "$work/rank.pl" "$work/$suite/tmp"
  (replaced=1 inside "$suite" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi "$@" -np 1 perl /tmp/rank.pl /tmp/log) >"$work/out" 2>&1 &
  local job=$! at
  for ((i = 0; i < 200; ++i)); do if [ -s "$log" ]; then break; else sleep 0.1; fi; done
  [ -s "$log" ] || not_tried "mpirun did not start: $(tail -n 3 "$work/out")"
  sleep 0.3
  at=$(cut -d' ' -f1 /proc/uptime)
  kill -INT $job
  wait $job || true
  term=$(awk -v at="$at" '/SIGTERM/ { print int(($1 - at) * 100 + 0.5); exit }' "$log")
  life=$(awk -v at="$at" '{ last = $1 } END { print int((last - at) * 100 + 0.5) }' "$log")
  : "${term:=9999}"
  echo "$(inside "$suite" mpirun.openmpi --version | head -n 1) $*: SIGTERM after $(seconds "$term") s," \
    "alive for $(seconds "$life") s"
}

interrupt bookworm
expect "4.1.4 asks after a second, and kills a second later" \
  [ "$term" -ge 80 -a "$term" -lt 250 -a "$life" -ge 160 -a "$life" -lt 400 ]
interrupt bookworm --mca odls_base_sigkill_timeout 3
expect "4.1.4 asks after 3 seconds where the option says so" [ "$term" -ge 280 -a "$term" -lt 450 -a "$life" -ge 460 ]
interrupt trixie
expect "5.0.7 asks after a quarter of a second, and kills a quarter later" [ "$term" -lt 80 -a "$life" -lt 150 ]
interrupt trixie --mca odls_base_sigkill_timeout 3
expect "5.0.7 takes the option, which changes nothing" [ "$term" -lt 80 -a "$life" -lt 150 ]
done_with_it
