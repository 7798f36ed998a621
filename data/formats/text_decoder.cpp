#include "data/formats/text_decoder.h"

#include <unicode/ucnv.h>

#include <array>

#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::data {
namespace {

// ICU's names.
const char* icu_name(TextEncoding encoding) {
  switch (encoding) {
    case TextEncoding::latin_1:
      return "ISO-8859-1";
    case TextEncoding::windows_1252:
      return "windows-1252";
    case TextEncoding::utf_16:
      return "UTF-16";
    case TextEncoding::utf_8:
      break;
  }
  return "UTF-8";
}

UConverter* open_converter(const char* name) {
  UErrorCode status = U_ZERO_ERROR;
  UConverter* const converter = ucnv_open(name, &status);
  FRUGAL_CHECK(U_SUCCESS(status), "[text] ICU has no converter for {}: {}", name,
               u_errorName(status));
  return converter;
}

}  // namespace

struct TextDecoder::Impl {
  const char* op;
  std::string path;
  TextEncoding encoding;
  UConverter *from, *to;
  std::array<UChar, 4096> pivot;
  UChar *pivot_source, *pivot_target;
  bool started = false;
};

TextDecoder::TextDecoder(const char* op, const std::string& path, TextEncoding encoding)
    : impl_(std::make_unique<Impl>()) {
  impl_->op = op;
  impl_->path = path;
  impl_->encoding = encoding;
  impl_->from = open_converter(icu_name(encoding));
  impl_->to = open_converter("UTF-8");
  impl_->pivot_source = impl_->pivot_target = impl_->pivot.data();
  UErrorCode status = U_ZERO_ERROR;
  ucnv_setToUCallBack(impl_->from, UCNV_TO_U_CALLBACK_STOP, nullptr, nullptr, nullptr, &status);
  FRUGAL_CHECK(U_SUCCESS(status), "[text] ICU: {}", u_errorName(status));
}

TextDecoder::~TextDecoder() {
  ucnv_close(impl_->from);
  ucnv_close(impl_->to);
}

void TextDecoder::decode(std::string_view bytes, bool last, std::string& out) {
  const char* source = bytes.data();
  const char* const source_end = source + bytes.size();
  std::array<char, 8192> piece;
  while (true) {
    char* target = piece.data();
    UErrorCode status = U_ZERO_ERROR;
    ucnv_convertEx(impl_->to, impl_->from, &target, piece.data() + piece.size(), &source,
                   source_end, impl_->pivot.data(), &impl_->pivot_source, &impl_->pivot_target,
                   impl_->pivot.data() + impl_->pivot.size(), impl_->started ? 0 : 1, last ? 1 : 0,
                   &status);
    impl_->started = true;
    out.append(piece.data(), target);
    if (status == U_BUFFER_OVERFLOW_ERROR) continue;
    FRUGAL_CHECK(U_SUCCESS(status), "[{}] {}: expected text in {}, got other bytes ({})", impl_->op,
                 in_quotes(impl_->path), icu_name(impl_->encoding), u_errorName(status));
    return;
  }
}

}  // namespace frugal::data
