#!/usr/bin/env bash
# Installs the packages that cpack made on a bare Debian, and tries them there: the program, the Python package, and an
# example that is compiled against the library. The bare Debian is a folder that is removed afterwards (chroot).
# usage: [FRUGAL_MACHINES=DIR] tools/try_packages.sh FOLDER [SUITE]
#   FOLDER  where the .deb files are: the folder in which cpack was called
#   SUITE   bookworm (Debian 12) or trixie (Debian 13), as the system on which they were made; default: that of this one
# FRUGAL_MACHINES (default /var/tmp) keeps the bare system for the next call. FRUGAL_TRY_TORCH=1 also installs
# python3-torch (1 GB) and runs the tests of frugal.torch.
# Needs root and the package debootstrap.
set -euo pipefail
[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n '2,10p' "$0" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
packages=$(cd "$1" && pwd)
suite=${2:-$(. /etc/os-release && echo "${VERSION_CODENAME:-}")}
[ -n "$suite" ] || { echo "This system has no name of a release of Debian. Say which one: $0 $1 bookworm" >&2; exit 2; }
for name in frugal libfrugal-dev python3-frugal; do
  found=("$packages/${name}"_*.deb)
  [ ${#found[@]} -eq 1 ] && [ -f "${found[0]}" ] ||
    { echo "expected one package ${name}_*.deb in $packages, got: ${found[*]##*/}. cpack makes it, in the build folder" >&2; exit 2; }
done
[ "$(id -u)" -eq 0 ] || { echo "expected to be root, which chroot needs" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "expected the program debootstrap: apt-get install debootstrap" >&2; exit 2; }

machines=${FRUGAL_MACHINES:-/var/tmp}
base=$machines/frugal-debian-$suite.tar
root=$(mktemp -d "$machines/frugal-packages.XXXXXX")
cleanup() {
  local each
  for each in proc dev/shm dev; do
    if mountpoint -q "$root/$each"; then umount "$root/$each"; fi
  done
  rm -rf --one-file-system "$root"
}
trap cleanup EXIT
if [ -f "$base" ]; then
  tar -xf "$base" -C "$root"
else
  debootstrap --variant=minbase "$suite" "$root" >"$root.log" || { tail -n 5 "$root.log" >&2; exit 1; }
  rm -f "$root.log"
  tar -cf "$base.part" -C "$root" . && mv "$base.part" "$base"
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp -n /etc/apt/apt.conf.d/*proxy* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"

mkdir "$root/try"
cp "$packages"/{frugal,libfrugal-dev,python3-frugal}_*.deb "$root/try/"
cp -r "$here/examples" "$here/tests/python" "$root/try/"
cat >"$root/try/all.sh" <<'INSIDE'
set -euo pipefail
cd /try
apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null >apt.log 2>&1 || { tail -n 20 apt.log; exit 1; }; }
install() { apt install -y --no-install-recommends "$@"; }
apt update

echo "== the program"
install ./frugal_*.deb
frugal --version
cat >config.json <<'JSON'
{"model": {"name": "mlp", "hidden": [8]}, "train": {"steps": 4},
 "data": {"name": "random", "shape": [6, 6, 1], "classes": 3, "train_samples": 256, "test_samples": 64}}
JSON
frugal train config.json --out run --quiet >/dev/null
frugal report run --out page.html >/dev/null
[ -s page.html ]
frugal train /usr/share/frugal/configs/cifar10_resnet20.json --print-config >/dev/null 2>&1
[ -f /usr/share/doc/frugal/CHANGELOG.md ]

echo "== Python"
install ./python3-frugal_*.deb
python3 - <<'PYTHON'
import json
import sys

import numpy
import frugal

run = frugal.train("config.json", out="other", quiet=True)
program = json.load(open("run/summary.json"))
assert run.summary["final"]["test_loss"] == program["final"]["test_loss"], "another result than the program's"
network = frugal.network("resnet20", num_classes=4)
with frugal.policy(bits=4):
    loss = frugal.cross_entropy(network(numpy.zeros((8, 32, 32, 3), numpy.float32)), numpy.zeros(8, numpy.int64))
loss.backward()
print("Python", sys.version.split()[0], "NumPy", numpy.__version__, "frugal", frugal.__version__)
PYTHON

echo "== the library"
install ./libfrugal-dev_*.deb g++ cmake make
for name in embed predict; do
  cmake -S examples/$name -B build/$name >cmake.log 2>&1 || { cat cmake.log; exit 1; }
  cmake --build build/$name >cmake.log 2>&1 || { cat cmake.log; exit 1; }
done
build/embed/embed
build/predict/predict run

if [ "${FRUGAL_TRY_TORCH:-0}" = 1 ]; then
  echo "== PyTorch"
  install python3-torch
  python3 -B python/torch_test.py
  python3 -B python/torch_values_test.py
fi

echo "== removal"
apt purge -y frugal libfrugal-dev python3-frugal
left=$(find /usr /etc -ipath '*frugal*' -not -name '*.pyc' | head)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
INSIDE
started=$SECONDS
env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 FRUGAL_TRY_TORCH="${FRUGAL_TRY_TORCH:-0}" \
  chroot "$root" bash /try/all.sh
echo "All of it works on a bare $suite ($((SECONDS - started)) s)."
