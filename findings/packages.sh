# shellcheck shell=bash
# What the findings share; each of them reads it with `.`. It makes $work, a folder that is removed at the end, and
# has these functions:
#   packages SUITE NAME=VERSION...   unpacks packages of Debian, and all that they depend on, into $work/SUITE.
#                                    The system stays as it is: apt-get has lists and a state of its own.
#   inside SUITE [NAME=VALUE...] COMMAND...   runs a command with that folder as its root.
#   python_in SUITE ARGUMENT...      runs its python3, which finds the BLAS that Debian chooses on a whole system.
#   both_torches                     unpacks PyTorch 1.13 into bookworm and 2.6 into trixie.
#   expect TEXT COMMAND...           counts a behaviour as changed where the command, such as `[ ... ]`, fails.
#   done_with_it                     ends the script: 0 all is as stated, 1 something has changed.
# Exit status 2 says that nothing was tried, and why.
set -euo pipefail
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
changed=0

not_tried() {
  echo "not tried: $*"
  exit 2
}

packages() {
  local suite=$1 folder=$work/$1 site options
  shift
  echo "unpacks $* of Debian's $suite and what they depend on: this takes a minute or more" >&2
  mkdir -p "$folder" "$work/apt/$suite/lists/partial" "$work/apt/$suite/debs/partial"
  site=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | sort -u |
    head -n 1) || not_tried "apt-get of this system has no Debian"
  echo "deb $site $suite main" >"$work/apt/$suite/sources.list"
  : >"$work/apt/$suite/status"
  options=(-qq -o Dir::Etc::sourcelist="$work/apt/$suite/sources.list" -o Dir::Etc::sourceparts=-
    -o Dir::State::status="$work/apt/$suite/status" -o Dir::State::lists="$work/apt/$suite/lists"
    -o Dir::Cache::archives="$work/apt/$suite/debs" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o APT::Install-Recommends=false -o APT::Sandbox::User=root -o Debug::NoLocking=1)
  apt-get "${options[@]}" update || not_tried "no lists of $suite"
  apt-get "${options[@]}" --download-only -y install "$@" coreutils dash >"$work/apt/$suite/log" 2>&1 ||
    not_tried "$suite has no $*: $(tail -n 3 "$work/apt/$suite/log" | tr '\n' ' ')"
  local deb name
  for deb in "$work/apt/$suite"/debs/*.deb; do dpkg-deb -x "$deb" "$folder"; done
  rm -rf "$work/apt/$suite"
  for name in bin sbin lib lib64; do [ -e "$folder/$name" ] || ln -s "usr/$name" "$folder/$name"; done
  mkdir -p "$folder"/{proc,dev,tmp}
}

inside() {
  local folder=$work/$1 user=()
  shift
  [ "$(id -u)" = 0 ] || user=(--map-root-user)
  exec_or_run unshare "${user[@]}" --mount sh -c '
    folder=$1; shift
    mount --rbind /proc "$folder/proc" && mount --rbind /dev "$folder/dev" || exit 2
    exec chroot "$folder" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp "$@"' inside "$folder" "$@"
}
python_in() {
  local suite=$1 libraries=/usr/lib/x86_64-linux-gnu
  shift
  inside "$suite" LD_LIBRARY_PATH="$libraries/blas:$libraries/lapack" python3 "$@"
}
both_torches() {
  packages bookworm 'python3-torch=1.13.1*'
  packages trixie 'python3-torch=2.6.0*'
}
# In a subshell that sets `replaced`, the command takes the place of the shell, so that $! is its number.
exec_or_run() { if [ -n "${replaced:-}" ]; then exec "$@"; else "$@"; fi; }

expect() {
  local what=$1
  shift
  if "$@"; then
    echo "as stated: $what"
  else
    echo "CHANGED: $what"
    changed=1
  fi
}

done_with_it() { exit $changed; }
