// A program with a fault, so that a test sees where the report of a sanitizer goes.
// usage: sanitized_faults address|undefined
#include <cstdio>
#include <cstring>

int main(int count, char** words) {
  if (count != 2) return 2;
  if (std::strcmp(words[1], "undefined") == 0) {
    const int bits = 30 + count;
    std::printf("%u\n", 1u << bits);
  } else {
    const char* block = new char[4];
    const char beyond = block[2 + count];
    delete[] block;
    std::printf("%d\n", beyond);
  }
}
