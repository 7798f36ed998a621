#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/class_names.h"
#include "data/detection/box_set.h"
#include "data/formats/archive.h"
#include "data/formats/idx.h"
#include "data/formats/json_strict.h"
#include "data/formats/npy.h"
#include "data/formats/pickle.h"
#include "data/formats/safetensors_shards.h"
#include "data/formats/table.h"
#include "data/graph/musae.h"
#include "data/graph/npz_graph.h"
#include "data/graph/ogb.h"
#include "data/graph/planetoid.h"
#include "data/image/cifar.h"
#include "data/image/image_folder.h"
#include "data/image/mask_files.h"
#include "data/image/orientation.h"
#include "data/tables/csv_table.h"
#include "data/tables/tensor_file.h"
#include "data/text/byte_bpe.h"
#include "data/text/byte_characters.h"
#include "data/text/chat/chat_template.h"
#include "data/text/chat/choice_questions.h"
#include "data/text/chat/text_samples.h"
#include "data/text/glue.h"
#include "data/text/hub/hub_tokenizer.h"
#include "data/text/json_lines.h"
#include "data/text/wordpiece.h"
#include "tests/data/files.h"
#include "tests/data/formats/archive_bytes.h"
#include "tests/data/formats/arrays.h"
#include "tests/data/formats/pickles.h"
#include "tests/data/image/picture_files.h"
#include "tests/data/piece_model.h"
#include "tests/fuzz/reader.h"

namespace frugal_test {
namespace {

using namespace frugal;
using namespace frugal::data;

using Files = std::vector<std::pair<std::string, std::string>>;
using Words = std::vector<std::string>;

// A reader for each file of a folder: the others are good.
void add_folder(std::vector<Reader>& readers, const std::string& name, const Files& files,
                const std::vector<std::string>& fuzzed, const Words& words,
                const std::function<void(const std::string& folder)>& open) {
  for (const std::string& file : fuzzed) {
    Reader reader;
    reader.name = name + "_" + std::filesystem::path(file).filename().string();
    for (const auto& [other, content] : files)
      if (other == file) reader.seeds = {content};
    reader.words = words;
    reader.read = [=](const FuzzFolder& folder, const std::string& bytes) {
      for (const auto& [other, content] : files)
        if (other != file) folder.keep(other, content);
      folder.write(file, bytes);
      open(folder.path());
    };
    readers.push_back(reader);
  }
}

// A reader of one file.
void add_file(std::vector<Reader>& readers, const std::string& name, const std::string& file,
              std::vector<std::string> seeds, const Words& words,
              const std::function<void(const std::string& path)>& open) {
  readers.push_back(
      {name, std::move(seeds), words, [=](const FuzzFolder& folder, const std::string& bytes) {
         open(folder.write(file, bytes));
       }});
}

std::string safetensors(const std::string& header, size_t data_bytes) {
  return cat(little(header.size(), 8), header, std::string(data_bytes, '\1'));
}

const std::string kHeader =
    R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("y":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
const Words kTensorWords = {"\"dtype\":", "\"shape\":", "\"data_offsets\":", "\"F16\"",
                            "\"F64\"",    "\"I64\"",    "\"BOOL\"",          "\"U8\"",
                            "[0,0]",      "{}"};

void add_tensors(std::vector<Reader>& readers) {
  const auto all = [](const std::string& path) { SafetensorsFile::open(path).read_all(); };
  add_file(readers, "safetensors", "a.safetensors", {safetensors(kHeader, 32)}, kTensorWords, all);
  // The input is the header alone, whose length is right.
  readers.push_back({"safetensors_header",
                     {kHeader},
                     kTensorWords,
                     [all](const FuzzFolder& folder, const std::string& bytes) {
                       all(folder.write("a.safetensors", safetensors(bytes, 32)));
                     }});
  readers.push_back(
      {"safetensors_index",
       {R"({"metadata":{"total_size":32},"weight_map":{"x":"a.safetensors","y":"a.safetensors"}})"},
       {"\"weight_map\":", "\"a.safetensors\"", "../"},
       [](const FuzzFolder& folder, const std::string& bytes) {
         folder.keep("a.safetensors", safetensors(kHeader, 32));
         SafetensorsShards::open(folder.write("m.safetensors.index.json", bytes)).read_all();
       }});
  const std::string array = npy_of<float>("<f4", {1, 2, 3});
  const Words words = {"'descr': ", "'fortran_order': ",
                       "'shape': ", "True",
                       "False",     "(2, 3)",
                       "'<f8'",     "'|b1'",
                       "'>i4'",     "(3,)"};
  add_file(readers, "npy", "a.npy", {array, npy("<i8", "(2, 2)", std::string(32, '\0'), "True")},
           words, [](const std::string& path) { read_npy(path); });
  const auto archive = [](const std::string& path) {
    const NpzFile file = NpzFile::open(path);
    for (const std::string& name : file.names()) file.read(name);
  };
  readers.push_back(
      {"npz_array", {array}, words, [archive](const FuzzFolder& folder, const std::string& bytes) {
         archive(folder.write("a.npz", zip({{"a.npy", bytes}}, true)));
       }});
  add_file(readers, "npz", "a.npz", {zip({{"a.npy", array}}), zip({{"a.npy", array}}, true, true)},
           {"PK\1\2", "PK\3\4", "PK\5\6", ".npy"}, archive);
  add_file(readers, "tensor_file", "a.npz",
           {zip({{"x_train.npy", array}, {"y_train.npy", npy_of<int64_t>("<i8", {0, 1, 2})}})},
           words, [](const std::string& path) {
             const TensorFile file(path);
             file.read("x_train");
             read_targets(file, "y_train", TargetTask::automatic);
           });
}

void add_pickles(std::vector<Reader>& readers) {
  const Words words = {"cnumpy.core.multiarray\n_reconstruct\n",
                       "cnumpy\ndtype\n",
                       "cscipy.sparse.csr\ncsr_matrix\n",
                       "ccollections\ndefaultdict\n",
                       "c__builtin__\nlist\n",
                       "q\1",
                       "h\1",
                       "(",
                       "t",
                       "R",
                       "b",
                       "u",
                       "\x85"};
  const std::string array = pickled_array("i4", {2, 2}, std::string(16, '\1'));
  add_file(readers, "pickle_array", "a", {protocol2(array)}, words,
           [](const std::string& path) { read_pickle_array(path); });
  add_file(readers, "pickle_csr", "a", {protocol2(pickled_csr(2, 3, {0, 1, 2}, {0, 2}, {1, 2}))},
           words, [](const std::string& path) { read_pickle_csr(path); });
  add_file(readers, "pickle_lists", "a", {protocol2(pickled_lists({{1}, {0, 2}, {1}}))}, words,
           [](const std::string& path) { read_pickle_lists(path); });
}

void add_pictures(std::vector<Reader>& readers) {
  const std::string idx =
      cat(std::string("\0\0\x08\3", 4), std::string("\0\0\0\2", 4), std::string("\0\0\0\2", 4),
          std::string("\0\0\0\2", 4), std::string(8, '\5'));
  add_file(readers, "idx", "a", {idx}, {}, [](const std::string& path) { read_idx(path); });
  readers.push_back({"idx_gzip", {idx}, {}, [](const FuzzFolder& folder, const std::string& bytes) {
                       read_idx(folder.write("a.gz", gzip(bytes)));
                     }});
  add_file(readers, "gzip", "a.gz", {gzip(idx), gzip(idx.substr(0, 9)) + gzip(idx.substr(9))}, {},
           [](const std::string& path) { read_idx(path); });
  add_file(readers, "cifar", "a.bin", {std::string(3073, '\7'), std::string(2 * 3073, '\1')}, {},
           [](const std::string& path) {
             CifarRecords records;
             read_cifar_file(path, Cifar::c10, 0, records);
           });
#ifdef FRUGAL_TEST_PICTURES
  const Picture small = sample_picture(12, 9);
  const auto text = [](const FileBytes& bytes) { return std::string(bytes.begin(), bytes.end()); };
  const auto decode = [](const FuzzFolder&, const std::string& bytes) {
    const std::span data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    orientation_of_jpeg(data);
    orientation_of_png(data);
    orientation_of_webp(data);
    // A header may promise a large picture: what is decoded here is at most a million pixels.
    const PictureInfo info = picture_info(data, "x", Exif::turn);
    if (info.height * info.width <= 1 << 20) decode_picture(data, "x", 3, 4, 4, Exif::turn);
  };
  readers.push_back(
      {"jpeg", {text(jpeg_file(small))}, {"Exif", "JFIF", "\xff\xda", "\xff\xc2"}, decode});
  readers.push_back({"png",
                     {text(png_file(small)), text(png_file_turned(small, 6))},
                     {"IHDR", "IDAT", "IEND", "PLTE", "eXIf", "tRNS"},
                     decode});
  readers.push_back({"webp",
                     {text(webp_file(small)), text(webp_file_turned(small, 3))},
                     {"VP8X", "VP8L", "EXIF", "ANIM"},
                     decode});
  readers.push_back({"bmp", {text(bmp_file(small)), text(bmp_file(small, 32, true))}, {}, decode});
  readers.push_back(
      {"mask",
       {text(png_file(Picture{6, 5, 1, std::vector<uint8_t>(30, 2)}))},
       {"IHDR", "IDAT", "PLTE"},
       [](const FuzzFolder&, const std::string& bytes) {
         decode_mask({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "x");
       }});
#endif
  add_file(readers, "picture_list", "list.csv",
           {"path,label\na.jpg,cat\nb.jpg,dog\n", "a.jpg,0\nb.jpg,1\n"}, {",", "\n", "\""},
           [](const std::string& path) { read_picture_list(path); });
  add_file(readers, "several_labels", "list.csv",
           {"path,label\na.jpg,cat|dog\nb.jpg,dog\n", "path,cat,dog\na.jpg,0,1\n"},
           {"|", ",", "\n"}, [](const std::string& path) { read_several_labels(path); });
  add_file(readers, "class_names", "names",
           {"cat\ndog\n", R"(["cat", "dog"])", R"({"0": ["n01440764", "tench"]})"},
           {"\"", "[", "{\"0\": "}, [](const std::string& path) { read_class_names(path); });
}

// A token for each byte, and two more.
std::string byte_vocabulary() {
  nlohmann::json vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    std::string token;
    append_byte_characters(token, std::string(1, static_cast<char>(byte)));
    vocabulary[token] = byte;
  }
  vocabulary["ab"] = 256;
  vocabulary["aba"] = 257;
  return vocabulary.dump();
}

// The text as UTF-16, little-endian.
std::string wide(const std::string& text) {
  std::string out;
  for (const char c : text) out += {c, '\0'};
  return out;
}

void add_texts(std::vector<Reader>& readers) {
  for (const bool known : {false, true})
    add_file(readers, known ? "csv_known" : "csv", "a.csv",
             {"a,b,target\n1,x,0\n2.5,\"y, z\",1\n-3e2,x,0\n",
              "\xef\xbb\xbf"
              "a,target\r\n,1\r\n1,0\r\n"},
             {"\"", "\"\"", ",", "\r\n", "NA", "nan", "inf", "target"},
             [known](const std::string& path) {
               if (known) {
                 CsvTable(path, {{"a", true}, {"target", true}});
                 return;
               }
               const CsvTable table(path);
               CsvOptions options;
               options.fill_missing = true;
               std::vector<int64_t> rows;
               for (int64_t row = 0; row < table.rows(); ++row) rows.push_back(row);
               CsvEncoder(table, options, rows).encode(table);
             });
  add_file(readers, "csv_utf16", "a.csv", {cat("\xff\xfe", wide("a,target\n1,0\n2,1\n"))}, {},
           [](const std::string& path) { CsvTable(path, TextEncoding::utf_16); });
  add_file(readers, "glue", "SST-2/train.tsv", {"sentence\tlabel\na fine film\t1\nno\t0\n"},
           {"\t", "\n", "\""}, [](const std::string& path) {
             const std::string folder = std::filesystem::path(path).parent_path().parent_path();
             read_glue(folder, "SST-2", GlueSplit::train);
           });
  add_file(
      readers, "json_lines", "a.jsonl",
      {"{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"b\", \"label\": \"x\"}\n"},
      {"\"text\":", "\"label\":", "\\u0000", "\\ud800", "\n", "{", "}", "null", "true"},
      [](const std::string& path) { sorted_labels(read_json_lines(path, {.label = "label"})); });
  add_file(readers, "wordpiece", "vocab.txt",
           {"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\n##b\n"}, {"##", "[UNK]", "\n"},
           [](const std::string& path) {
             const WordPiece pieces(read_vocabulary(path));
             pieces.decode(pieces.encode("ab ba, a\xcc\x81 c"));
           });
  add_folder(readers, "byte_bpe",
             {{"vocab.json", byte_vocabulary()}, {"merges.txt", "#version: 0.2\na b\nab a\n"}},
             {"vocab.json", "merges.txt"}, {"\": ", "\\u0120", "\n", " "},
             [](const std::string& folder) {
               const ByteBpe bpe(folder + "/vocab.json", folder + "/merges.txt");
               bpe.decode(bpe.encode("ab abab"));
             });
}

// A tokenizer of characters, with most kinds of parts.
const std::string kTokenizer =
    R"({"version": "1.0", "added_tokens": [
      {"id": 6, "content": "<s>", "special": true, "normalized": false, "lstrip": true},
      {"id": 7, "content": "</s>", "special": true, "single_word": true, "rstrip": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"},
      {"type": "Replace", "pattern": {"Regex": "x+"}, "content": "a"}, {"type": "Prepend", "prepend": " "}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)|."}, "behavior": "Isolated", "invert": false},
      {"type": "Metaspace", "replacement": " ", "prepend_scheme": "first", "split": true}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "aba": 4, " ": 5},
      "unk_token": "<unk>", "byte_fallback": false, "ignore_merges": true, "merges": [["a", "b"], ["ab", "a"]]}})";
const std::string kUnigram =
    R"({"added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["a", -1.5], ["ab", -2], ["b", -1]]}})";

// One for readers of what stands beside a tokenizer: without expressions, which take long to
// compile.
const std::string kShortTokenizer =
    R"({"added_tokens": [{"id": 6, "content": "<s>", "special": true}, {"id": 7, "content": "</s>", "special": true}],
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
    "model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "aba": 4, " ": 5},
      "unk_token": "<unk>", "byte_fallback": false, "merges": [["a", "b"], ["ab", "a"]]}})";

// Rules of SentencePiece by which "A" becomes "a".
std::string rules_of_characters() {
  // The root's children lie at 0 ^ label; the unit of "A" says that a text ends there.
  std::vector<uint32_t> units(256, 0);
  units[0] = 1 << 10;                                     // children from 1 on
  units[1 ^ 'A'] = 'A' | 1 << 8 | (1 ^ 'A' ^ 128) << 10;  // its value is unit 128
  units[128] = 0x80000000;                                // the replacement at 0
  std::string bytes(4 + units.size() * 4, '\0');
  const auto size = static_cast<uint32_t>(units.size() * 4);
  std::memcpy(bytes.data(), &size, 4);
  std::memcpy(bytes.data() + 4, units.data(), size);
  return bytes + std::string("a\0", 2);
}

void add_language(std::vector<Reader>& readers) {
  add_file(readers, "tokenizer_json", "tokenizer.json", {kTokenizer, kUnigram},
           {"\"type\": \"",
            "\"ByteLevel\"",
            "\"WordPiece\"",
            "\"WordLevel\"",
            "\"Unigram\"",
            "\"Precompiled\"",
            "\"precompiled_charsmap\": \"",
            "\"Punctuation\"",
            "\"Digits\"",
            "\"behavior\": \"",
            "\"MergedWithNext\"",
            "\"Contiguous\"",
            "\"Regex\"",
            "(?i:",
            "\\\\p{",
            "{1,3}",
            "[^",
            "|",
            "(?!",
            "\"BertNormalizer\"",
            "\"Nmt\"",
            "\"StripAccents\"",
            "null"},
           [](const std::string& path) {
             const HubTokenizer tokenizer(path);
             const TokenIds ids = tokenizer.encode("Ab \xc3\xa9 ab</s>xx<s> \xf0\x9f\x98\x80  a1");
             tokenizer.decode(ids);
             tokenizer.describe();
           });
  std::string unigram = frugal_test::wire_piece("<unk>", 0, 2);
  for (int byte = 0; byte < 256; ++byte)
    unigram += frugal_test::wire_piece(fmt::format("<0x{:02X}>", byte), 0, 6);
  unigram += frugal_test::wire_piece("A", -1, 1) + frugal_test::wire_piece("b ", -2, 1) +
             frugal_test::wire_trainer(1, frugal_test::wire_number(35, 1));
  add_file(readers, "tokenizer_model", "tokenizer.model",
           {frugal_test::small_piece_model(
                frugal_test::wire_content(3, frugal_test::wire_content(2, rules_of_characters()))),
            unigram},
           {"\x0a\x0c\x0a\x01", "\x18\x04", "\x18\x06", "\xff\xff\xff\xff\x0f", "\x12\x02\x18\x01",
            "\xe2\x96\x81"},
           [](const std::string& path) {
             const HubTokenizer tokenizer(path);
             const TokenIds ids = tokenizer.encode("Ab \xc3\xa9 ab<own>xx<s> \xf0\x9f\x98\x80  a1");
             tokenizer.decode(ids);
             tokenizer.describe();
           });
  const std::string chat =
      R"({%- set ns = namespace(n=0) -%}{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %})"
      R"({{ '<|im_start|>' + m.role + '\n' + m['content']|trim + '<|im_end|>\n' }}{% set ns.n = ns.n + loop.index0 %})"
      R"({% elif m.tool_calls is defined and m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %})"
      R"({% macro f(x, y=2) %}{{ x ~ y }}{% endmacro %}{{ f(ns.n) if add_generation_prompt else messages[-1].content[1:] }})";
  readers.push_back(
      {"chat_template",
       {chat},
       {"{%",
        "%}",
        "{{",
        "}}",
        "{#",
        "#}",
        "{%- ",
        " -%}",
        "for x in range(",
        "if ",
        "endif",
        "endfor",
        "set ",
        "macro ",
        "endmacro",
        "namespace(",
        "loop.",
        "|length",
        "|join(",
        "| tojson",
        "is defined",
        "[::-1]",
        ".split(",
        ".strip()",
        "**",
        "//",
        "~",
        "%",
        "raise_exception(",
        "strftime_now("},
       [](const FuzzFolder&, const std::string& bytes) {
         const ChatTemplate chat_template(bytes, "x", {{"bos_token", "<s>"}});
         Conversation conversation;
         conversation.messages = parse_json<nlohmann::ordered_json>(
             R"([{"role": "user", "content": " ab "}, {"role": "assistant", "content": "ba", "tool_calls": [{"n": 1.5}]}])");
         chat_template.render(conversation, true);
       }});
  // The tokenizer does not depend on the texts, and takes longer than they do.
  const Once<SampleEncoder> good(
      [](const std::string& folder) { return read_sample_encoder(folder); });
  const auto conversations = [](const std::string& folder, const SampleEncoder& encoder) {
    TextSampleCounts counts;
    TextSampleOptions options;
    options.truncate = true;
    read_text_samples(folder + "/x.jsonl", encoder, options, counts);
  };
  const auto choices = [](const std::string& folder, const SampleEncoder& encoder) {
    TextSampleOptions options;
    options.truncate = true;
    options.max_length = 8;
    if (are_questions(folder + "/x.jsonl"))
      read_choice_questions(folder + "/x.jsonl", encoder, options);
  };
  const auto add = [&](const char* name, const Files& files, const Words& words, const auto& read) {
    add_folder(readers, name, files, {"tokenizer_config.json"}, words,
               [=](const std::string& folder) { read(folder, read_sample_encoder(folder)); });
    add_folder(readers, name, files, {"x.jsonl"}, words,
               [=](const std::string& folder) { read(folder, good.of(folder)); });
  };
  add("conversations",
      {{"tokenizer.json", kShortTokenizer},
       {"tokenizer_config.json",
        R"({"eos_token": {"content": "</s>"}, "chat_template": "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"})"},
       {"x.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}]}\n"
        "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
        "\"value\": \"b\"}]}\n"
        "{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}\n{\"text\": \"ab\"}\n"}},
      {"\"messages\":", "\"role\":", "\"content\":", "\"tools\":", "\"prompt\":", "\"text\":",
       "null", "\"chat_template\": ", "\"eos_token\": ", "\n"},
      conversations);
  add("choices",
      {{"tokenizer.json", kShortTokenizer},
       {"tokenizer_config.json",
        R"({"chat_template": "{% for m in messages %}{{ m.role + m.content }}{% endfor %}"})"},
       {"x.jsonl",
        "{\"prompt\": \"ab\", \"choices\": [\"a\", \"b\"], \"answer\": 1}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
        "\"choices\": [\"ab\", \"b\"], \"answer\": \"A\"}\n"
        "{\"prompt\": \"a\", \"choices\": [\"a\", \"b\", \"ba\"], \"answer\": \"ba\"}\n"}},
      {"\"prompt\":", "\"messages\":", "\"choices\":", "\"answer\":", "[", "]", "-1",
       "18446744073709551615", "null", "\"\"", "\n"},
      choices);
}

void add_graphs(std::vector<Reader>& readers) {
  add_folder(readers, "ogb",
             {{"raw/edge.csv", "0,1\n2,1\n1,2\n3,3\n"},
              {"raw/node-feat.csv", "0.5,-1\n1e-3,2\n0,0\n4,-4\n"},
              {"raw/node-label.csv", "2\n0.0\nnan\n1\n"},
              {"split/time/train.csv", "3\n0\n"},
              {"split/time/valid.csv", "1\n"},
              {"split/time/test.csv", ""}},
             {"raw/edge.csv", "raw/node-feat.csv", "raw/node-label.csv", "split/time/train.csv"},
             {",", "\n", "nan", "inf"}, [](const std::string& folder) {
               open_ogb(folder, true, {false, false});
             });
  add_folder(
      readers, "musae",
      {{"small_edges.csv", "id_1,id_2\n0,1\n1,0\n2,2\n2,1\n"},
       {"small_features.json", R"({"1": [5, 0, 5], "0": [], "2": [1]})"},
       {"small_target.csv", "id,page_name,page_type\n1,\"b, \"\"x\"\"\",web\n0,a,art\n2,c,web\n"}},
      {"small_edges.csv", "small_features.json", "small_target.csv"},
      {",", "\n", "\"", "[", "16777216"},
      [](const std::string& folder) { open_musae(folder, "small", {}); });
  Files arrays;
  add_csr(arrays, "adj_", 3, 3, {0, 1, 2, 4}, {1, 0, 2, 0}, {1, 1, 1, 1});
  add_csr(arrays, "attr_", 3, 4, {0, 2, 2, 3}, {3, 1, 0}, {1, 3, 2});
  arrays.emplace_back("labels.npy", npy_of<int64_t>("<i8", {1, 0, 2}));
  for (size_t i = 0; i < arrays.size(); ++i)
    readers.push_back({"npz_graph_" + arrays[i].first.substr(0, arrays[i].first.size() - 4),
                       {arrays[i].second},
                       {"'<i8'", "'<f4'", "(2, 2)"},
                       [arrays, i](const FuzzFolder& folder, const std::string& bytes) {
                         Files changed = arrays;
                         changed[i].second = bytes;
                         open_npz_graph(folder.write("g.npz", zip(changed)), {false, false});
                       }});
}

void add_boxes(std::vector<Reader>& readers) {
  add_file(readers, "coco", "a.json",
           {R"({"images": [{"id": 7, "file_name": "x.jpg", "height": 20, "width": 30}],
                "categories": [{"id": 1, "name": "cat"}, {"id": 5, "name": "dog"}],
                "annotations": [{"id": 1, "image_id": 7, "category_id": 5, "bbox": [1, 2, 3.5, 4], "area": 14, "iscrowd": 0}]})"},
           {"\"bbox\": ", "\"iscrowd\": 1", "\"area\": ", "\"id\": ", "\"image_id\": ", "-1", "1e9",
            "[]", "{}"},
           [](const std::string& path) {
             const std::string folder = std::filesystem::path(path).parent_path();
             std::ofstream(folder + "/x.jpg") << "x";
             BadEntries bad;
             read_coco(path, folder, {}, bad);
           });
#if __has_include(<pugixml.hpp>)
  const std::string xml =
      "<annotation><size><width>30</width><height>20</height></size><object><name>dog</name>"
      "<difficult>0</difficult><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>30</xmax><ymax>20</ymax>"
      "</bndbox></object></annotation>";
  add_folder(
      readers, "voc",
      {{"ImageSets/Main/train.txt", "a\n"}, {"JPEGImages/a.jpg", "x"}, {"Annotations/a.xml", xml}},
      {"ImageSets/Main/train.txt", "Annotations/a.xml"},
      {"<object>", "</object>", "<bndbox>", "<size>", "<difficult>1", "&amp;", "<!--", "../"},
      [](const std::string& folder) {
        BadEntries bad;
        read_voc(folder, BoxPart::train, {}, bad);
      });
#endif
}

void add_archives(std::vector<Reader>& readers) {
  const std::vector<ArchiveEntry> entries = {
      {"top", "", '5'}, {"top/a.txt", "abc"}, {"top/b/c.bin", "xyz"}};
  const auto unpacked = [](const FuzzFolder& folder, const std::string& bytes) {
    UnpackLimits limits;
    limits.bytes = 1 << 20;
    limits.entries = 100;
    unpack(folder.write("a.archive", bytes), folder.path() + "/out", {}, limits);
  };
  readers.push_back(
      {"tar", {tar(entries), tar({{"a", "x"}})}, {"ustar", "../", "/", "top/"}, unpacked});
  readers.push_back({"tar_gzip",
                     {tar(entries)},
                     {"ustar", "../", "/"},
                     [unpacked](const FuzzFolder& folder, const std::string& bytes) {
                       unpacked(folder, gzip(bytes));
                     }});
  readers.push_back(
      {"zip", {stored_zip(entries)}, {"PK\1\2", "PK\3\4", "PK\5\6", "../"}, unpacked});
}

}  // namespace

std::vector<Reader> data_readers() {
  std::vector<Reader> readers;
  add_tensors(readers);
  add_pickles(readers);
  add_pictures(readers);
  add_texts(readers);
  add_language(readers);
  add_graphs(readers);
  add_boxes(readers);
  add_archives(readers);
  return readers;
}

}  // namespace frugal_test
