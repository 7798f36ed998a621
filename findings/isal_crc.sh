#!/usr/bin/env bash
# ISA-L 2.30.0: crc32_gzip_refl() and crc32_ieee() invert the first and the last value themselves, as the standards of
# these sums have it. crc32_iscsi(), which is for CRC-32C and stands between them in the same header, does not.
# It also takes its arguments in another order: bytes, length, first value; and the length is an int.
# Seen, of the nine bytes "123456789": crc32_gzip_refl(0, ...) cbf43926 and crc32_ieee(0, ...) fc891918, the check
# values of CRC-32 and CRC-32/BZIP2. crc32_iscsi(..., 0) is 58e3fa20; the check value of CRC-32C, e3069283, comes from
# ~crc32_iscsi(..., ~0). The header does not mention it.
# Frugal: apps/cli/event_file.cpp inverts; tests/apps/event_reader.h computes the sums of event files on its own.
. "$(dirname "$0")/packages.sh"
packages bookworm 'libisal-dev=2.30.0*' gcc libc6-dev
cat >"$work/bookworm/tmp/crc.c" <<'END_OF_PROGRAM'
#include <isa-l/crc.h>
#include <stdio.h>

int main(void) {
  unsigned char bytes[] = "123456789";
  printf("gzip %08x\n", crc32_gzip_refl(0, bytes, 9));
  printf("ieee %08x\n", crc32_ieee(0, bytes, 9));
  printf("iscsi %08x\n", crc32_iscsi(bytes, 9, 0));
  printf("inverted %08x\n", ~crc32_iscsi(bytes, 9, ~0u));
  return 0;
}
END_OF_PROGRAM
inside bookworm gcc /tmp/crc.c -o /tmp/crc -lisal || not_tried "the program does not compile"
inside bookworm /tmp/crc | tee "$work/out"
expect "two functions give check values as they are" [ "$(grep -cE 'gzip cbf43926|ieee fc891918' "$work/out")" -eq 2 ]
expect "the one for CRC-32C does not" grep -qx 'iscsi 58e3fa20' "$work/out"
expect "it does with first and last value inverted" grep -qx 'inverted e3069283' "$work/out"
done_with_it
