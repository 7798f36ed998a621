#!/usr/bin/env bash
# libarchive 3.6.2 gives no name for an entry of a zip archive whose name is UTF-8 and not ASCII, unless the program has
# set a locale that writes it. archive_entry_pathname_utf8() gives none either, although the file has it in UTF-8.
# Seen: in the locale "C", in which every program starts, status ARCHIVE_WARN, and both functions give null. After
# setlocale(LC_ALL, "C.UTF-8") both give the name.
# Frugal: data/formats/zip.h (UnicodeNames); tests/data/formats/archive_test.cpp and npy_test.cpp.
. "$(dirname "$0")/packages.sh"
packages bookworm 'libarchive-dev=3.6.2*' gcc libc6-dev python3-minimal libpython3-stdlib libc-bin
inside bookworm python3 -c '
import zipfile
with zipfile.ZipFile("/tmp/a.zip", "w") as archive:
    archive.writestr("gr\u00f6\u00dfe.txt", b"alpha")'
cat >"$work/bookworm/tmp/names.c" <<'END'
#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <stdio.h>

int main(int count, char** words) {
  if (count > 1 && setlocale(LC_ALL, words[1]) == NULL) return 2;
  struct archive* reader = archive_read_new();
  struct archive_entry* entry;
  archive_read_support_format_zip(reader);
  archive_read_open_filename(reader, "/tmp/a.zip", 65536);
  const int status = archive_read_next_header(reader, &entry);
  const char *name = archive_entry_pathname(entry), *utf8 = archive_entry_pathname_utf8(entry);
  printf("%s: status %d, name %s, name_utf8 %s\n", archive_version_string(), status, name ? name : "null",
         utf8 ? utf8 : "null");
  return status == ARCHIVE_WARN && !name && !utf8 ? 10 : status == ARCHIVE_OK && name && utf8 ? 0 : 1;
}
END
inside bookworm gcc /tmp/names.c -o /tmp/names -larchive || not_tried "the program does not compile"
status=0
inside bookworm /tmp/names || status=$?
expect "in the locale C there is a warning and no name" [ $status -eq 10 ]
status=0
inside bookworm /tmp/names C.UTF-8 || status=$?
expect "in C.UTF-8 there is the name" [ $status -eq 0 ]
done_with_it
