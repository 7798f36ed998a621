#include "data/fetch/sources.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/fetch/fetch.h"
#include "data/fetch/sha256.h"
#include "data/formats/archive.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;

struct Known {
  const char* name;
  int64_t bytes;
  const char* sha256;
};

// The sums of images, GLUE and tiny-shakespeare are from the lists of TensorFlow Datasets.
const std::vector<Known> kFashionMnist{
    {"train-images-idx3-ubyte.gz", 26421880,
     "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
    {"train-labels-idx1-ubyte.gz", 29515,
     "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
    {"t10k-images-idx3-ubyte.gz", 4422102,
     "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
    {"t10k-labels-idx1-ubyte.gz", 5148,
     "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
};
const std::vector<Known> kMnist{
    {"train-images-idx3-ubyte.gz", 9912422,
     "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
    {"train-labels-idx1-ubyte.gz", 28881,
     "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
    {"t10k-images-idx3-ubyte.gz", 1648877,
     "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
    {"t10k-labels-idx1-ubyte.gz", 4542,
     "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
};
const std::vector<Known> kCora{
    {"x", 22119, "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab"},
    {"y", 4054, "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1"},
    {"tx", 148025, "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a"},
    {"ty", 28135, "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad"},
    {"allx", 257305, "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543"},
    {"ally", 47959, "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71"},
    {"graph", 59847, "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d"},
    {"test.index", 5000, "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875"},
};
const std::vector<Known> kCiteseer{
    {"x", 31087, "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6"},
    {"y", 3014, "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924"},
    {"tx", 260321, "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21"},
    {"ty", 24135, "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce"},
    {"allx", 595021, "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668"},
    {"ally", 55623, "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95"},
    {"graph", 61987, "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7"},
    {"test.index", 5000, "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4"},
};
const std::vector<Known> kPubmed{
    {"x", -1, "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33"},
    {"y", -1, "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3"},
    {"tx", -1, "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d"},
    {"ty", -1, "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd"},
    {"allx", -1, "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e"},
    {"ally", -1, "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e"},
    {"graph", -1, "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9"},
    {"test.index", -1, "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5"}};

// Files of one folder. Each file is at all of these addresses.
std::vector<SourceFile> files_of(const std::string& prefix, const std::vector<std::string>& bases,
                                 const std::vector<Known>& known) {
  std::vector<SourceFile> files;
  for (const Known& file : known) {
    SourceFile& made = files.emplace_back();
    made.path = prefix + file.name;
    for (const std::string& base : bases) made.urls.push_back(base + file.name);
    made.bytes = file.bytes;
    made.sha256 = file.sha256;
  }
  return files;
}

Source planetoid(const std::string& name, const std::string& what,
                 const std::vector<Known>& parts) {
  const std::string stem = "ind." + name + ".";
  const std::string base =
      "https://raw.githubusercontent.com/kimiyoung/planetoid/"
      "af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/";
  return {name, what, files_of("planetoid/" + stem, {base + stem}, parts)};
}

// A task of GLUE, whose archive holds a folder of its name.
Source glue(const std::string& name, const std::string& task, const std::string& what,
            const std::string& archive, int64_t bytes, const std::string& sha256,
            const std::vector<std::string>& files) {
  Source source{name, what};
  source.files = {{"downloads/" + archive,
                   {"https://dl.fbaipublicfiles.com/glue/data/" + archive},
                   bytes,
                   sha256}};
  source.folder = "glue/" + task;
  source.top = task;
  for (const std::string& file : files) source.contents.push_back({source.folder + "/" + file, {}});
  return source;
}

// A graph of GraphSAINT. Its authors keep the files on Google Drive, under these identifiers.
Source graphsaint(const std::string& name, const std::string& what,
                  const std::array<const char*, 4>& there) {
  constexpr std::array<const char*, 4> kFiles{"adj_full.npz", "feats.npy", "class_map.json",
                                              "role.json"};
  Source source{name, what};
  for (size_t i = 0; i < kFiles.size(); ++i)
    source.files.push_back(
        {name + "/" + kFiles[i],
         {fmt::format("https://drive.usercontent.google.com/download?id={}&confirm=t", there[i])}});
  return source;
}

std::vector<Source> make_sources() {
  const std::string labels = "images, 10 classes: 60,000 to train on, 10,000 to test";
  const std::string text = "text/";
  std::vector<Source> all;
  all.push_back({"fashion_mnist", "28x28 " + labels,
                 files_of("fashion-mnist/",
                          {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                           "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/"
                           "master/data/fashion/"},
                          kFashionMnist)});
  all.push_back({"mnist", "28x28 " + labels,
                 files_of("mnist/",
                          {"https://storage.googleapis.com/cvdf-datasets/mnist/",
                           "https://ossci-datasets.s3.amazonaws.com/mnist/"},
                          kMnist)});
  all.push_back({"cifar10",
                 "32x32 color images, 10 classes: 50,000 to train on, 10,000 to test",
                 {{"downloads/cifar-10-binary.tar.gz",
                   {"https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"},
                   170052171,
                   "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}},
                 "cifar-10-batches-bin",
                 "cifar-10-batches-bin",
                 {
                     {"cifar-10-batches-bin/data_batch_1.bin",
                      {},
                      30730000,
                      "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
                     {"cifar-10-batches-bin/data_batch_2.bin",
                      {},
                      30730000,
                      "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
                     {"cifar-10-batches-bin/data_batch_3.bin",
                      {},
                      30730000,
                      "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
                     {"cifar-10-batches-bin/data_batch_4.bin",
                      {},
                      30730000,
                      "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
                     {"cifar-10-batches-bin/data_batch_5.bin",
                      {},
                      30730000,
                      "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
                     {"cifar-10-batches-bin/test_batch.bin",
                      {},
                      30730000,
                      "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
                 }});
  all.push_back({"cifar100",
                 "32x32 color images, 100 classes: 50,000 to train on, 10,000 to test",
                 {{"downloads/cifar-100-binary.tar.gz",
                   {"https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"},
                   168513733,
                   "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"}},
                 "cifar-100-binary",
                 "cifar-100-binary",
                 // 3074 bytes per image; the sum of the archive is enough
                 {{"cifar-100-binary/train.bin", {}, 153700000},
                  {"cifar-100-binary/test.bin", {}, 30740000}}});
  all.push_back(planetoid("cora", "citation graph: 2,708 papers, 7 classes", kCora));
  all.push_back(planetoid("citeseer", "citation graph: 3,327 papers, 6 classes", kCiteseer));
  all.push_back(planetoid("pubmed", "citation graph: 19,717 papers, 3 classes", kPubmed));
  const std::string npz =
      "https://raw.githubusercontent.com/shchur/gnn-benchmark/"
      "1e72912a0810cdf27ae54fd589a3b43358a2b161/data/npz/";
  all.push_back({"cora_npz",
                 "citation graph: 2,708 papers, 7 classes, without a split",
                 {{"graphs/npz/cora.npz",
                   {npz + "cora.npz"},
                   540580,
                   "068e22d90c3849b4057dfb05851741428992af058efcd4e7ebb4186f3d581de2"}}});
  all.push_back({"citeseer_npz",
                 "citation graph: 3,312 papers, 6 classes, without a split",
                 {{"graphs/npz/citeseer.npz",
                   {npz + "citeseer.npz"},
                   1348784,
                   "280278b21b434c047922e8389518861416fb3ad39389c27865ff0e6bbb0aaab7"}}});
  const std::string musae =
      "https://raw.githubusercontent.com/benedekrozemberczki/MUSAE/"
      "5f901232957b6c9985d750aac48cda39a4b24285/input/";
  const std::string facebook = "graphs/musae-facebook/facebook_";
  all.push_back({"facebook",
                 "graph of 22,470 pages, 4 classes (GPL-3.0)",
                 {{facebook + "edges.csv",
                   {musae + "edges/facebook_edges.csv"},
                   1882610,
                   "7c50d8f02a75cc0829577814a1fc14535164daa38d79c3612340c9e9cdbd4022"},
                  {facebook + "features.json",
                   {musae + "features/facebook.json"},
                   2088766,
                   "ea870537646a93642a0008d38aa9bfeff02018070ba97b1f3f469d9622626436"},
                  {facebook + "target.csv",
                   {musae + "target/facebook_target.csv"},
                   1177912,
                   "7bd96eafea3c2ca40f44bfa9e73642194696c21e38c7b29ed409c32ad14075cd"}}});
  all.push_back({"ogbn_arxiv",
                 "citation graph: 169,343 papers, 40 classes (ODC-BY)",
                 {{"downloads/arxiv.zip",
                   {"https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"},
                   83058288,
                   "49f85c801589ecdcc52cfaca99693aaea7b8af16a9ac3f41dd85a5f3193fe276"}},
                 "ogbn_arxiv",
                 "arxiv",
                 {{"ogbn_arxiv/raw/edge.csv.gz", {}},
                  {"ogbn_arxiv/raw/node-feat.csv.gz", {}},
                  {"ogbn_arxiv/raw/node-label.csv.gz", {}},
                  {"ogbn_arxiv/split/time/train.csv.gz", {}},
                  {"ogbn_arxiv/split/time/valid.csv.gz", {}},
                  {"ogbn_arxiv/split/time/test.csv.gz", {}}}});
  all.push_back(
      graphsaint("flickr", "graph of 89,250 images, 7 classes",
                 {"1crmsTbd1-2sEXsGwa2IKnIB7Zd3TmUsy", "1join-XdvX3anJU_MLVtick7MgeAQiWIZ",
                  "1uxIkbtg5drHTsKt-PAsZZ4_yJmgFmle9", "1htXCtuktuCW8TR8KiKfrFDAxUgekQoV7"}));
  all.push_back(
      graphsaint("reddit", "graph of 232,965 posts, 41 classes",
                 {"1sncK996BM5lpuDf75lDFqCiDZyErc1c2", "1ZsHaJ0ussP1W722krmEIp_8pwKAoi5b3",
                  "1JF3Pjv9OboMNYs2aXRQGbJbc4t_nDd5u", "1nJIKd77lcAGU4j-kVNx_AIGEkveIKz3A"}));
  all.push_back(
      graphsaint("yelp", "graph of 716,847 users, 100 labels",
                 {"1Juwx8HtDwSzmVIJ31ooVa1WljI4U5JnA", "1Zy6BZH_zLEjKlEFSduKE5tV9qqA_8VtM",
                  "1VUcBGr0T0-klqerjAjxRmAqFuld_SMWU", "1NI5pa5Chpd-52eSmLW60OnB3WS5ikxq_"}));
  all.push_back(
      graphsaint("amazon", "graph of 1,569,960 products, 107 labels",
                 {"17qhNA8H1IpbkkR-T2BmPQm8QNW5do-aa", "10SW8lCvAj-kb6ckkfTOC5y0l8XXdtMxj",
                  "1LIl4kimLfftj4-7NmValuWyCQE8AaE7P", "1npK9xlmbnjNkV80hK2Q68wTEVOFjnt4K"}));
  const std::vector<std::string> usual{"train.tsv", "dev.tsv", "test.tsv"};
  all.push_back(glue("sst2", "SST-2", "GLUE: sentiment of sentences", "SST-2.zip", 7439277,
                     "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa", usual));
  all.push_back(glue("cola", "CoLA", "GLUE: whether a sentence is English", "CoLA.zip", 376971,
                     "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff", usual));
  const std::string mrpc = "https://dl.fbaipublicfiles.com/senteval/senteval_data/";
  all.push_back({"mrpc",
                 "GLUE: whether two sentences say the same",
                 {{"glue/MRPC/msr_paraphrase_train.txt",
                   {mrpc + "msr_paraphrase_train.txt"},
                   1047044,
                   "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89"},
                  {"glue/MRPC/msr_paraphrase_test.txt",
                   {mrpc + "msr_paraphrase_test.txt"},
                   441275,
                   "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784"},
                  {"glue/MRPC/dev_ids.tsv",
                   {"https://raw.githubusercontent.com/MegEngine/Models/master/official/nlp/bert/"
                    "glue_data/MRPC/dev_ids.tsv",
                    "https://firebasestorage.googleapis.com/v0/b/mtl-sentence-representations."
                    "appspot.com/o/data%2Fmrpc_dev_ids.tsv?alt=media&token="
                    "ec5c0836-31d5-48f4-b431-7480817f1adc"},
                   6222,
                   "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7"}}});
  all.push_back(glue("rte", "RTE", "GLUE: whether one sentence implies another", "RTE.zip", 697150,
                     "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee", usual));
  all.push_back(glue("qnli", "QNLI", "GLUE: whether a sentence answers a question", "QNLIv2.zip",
                     10627589, "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
                     usual));
  all.push_back(glue("mnli", "MNLI", "GLUE: whether one sentence implies or contradicts another",
                     "MNLI.zip", 312783507,
                     "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
                     {"train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"}));
  all.push_back({"tiny_shakespeare",
                 "1.1 MB of plays, for language models",
                 {{text + "tinyshakespeare.txt",
                   {"https://raw.githubusercontent.com/karpathy/char-rnn/"
                    "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt"},
                   1115394,
                   "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"}}});
  all.push_back({"bert_vocab",
                 "the 30,522 tokens of BERT's uncased models",
                 {{text + "bert-base-uncased-vocab.txt",
                   {"https://huggingface.co/google-bert/bert-base-uncased/resolve/"
                    "86b5e0934494bd15c9632b12f734a8a67f723594/vocab.txt"},
                   231508,
                   "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"}}});
  const std::string gpt2 = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/";
  all.push_back({"gpt2_bpe",
                 "the 50,257 tokens of GPT-2",
                 {{text + "gpt2/vocab.json",
                   {gpt2 + "encoder.json"},
                   -1,
                   "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"},
                  {text + "gpt2/merges.txt",
                   {gpt2 + "vocab.bpe"},
                   -1,
                   "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"}}});
  return all;
}

FileCheck check_file(const SourceFile& file, const std::string& folder) {
  FileCheck check{file.path};
  const std::string path = folder + "/" + file.path;
  if (!is_file(path)) return check;
  const int64_t bytes = file_size("data", path);
  if (file.bytes >= 0 && bytes != file.bytes) {
    check.state = FileState::different;
    check.detail = fmt::format("expected {} bytes, got {}", file.bytes, bytes);
    return check;
  }
  check.state = FileState::unchecked;
  if (file.sha256.empty()) return check;
  const std::string sum = sha256_of_file(path);
  check.state = sum == file.sha256 ? FileState::good : FileState::different;
  if (sum != file.sha256)
    check.detail = fmt::format("expected SHA-256 {}, got {}", file.sha256, sum);
  return check;
}

bool is_there(FileState state) { return state == FileState::good || state == FileState::unchecked; }

// The bytes that a file of this name begins with; "": any. A server may send a page instead of a
// file.
std::string beginning_of(const std::string& path) {
  const std::string kind = fs::path(path).extension().string();
  if (kind == ".npz" || kind == ".zip") return "PK";
  if (kind == ".npy") return "\x93NUMPY";
  if (kind == ".json") return "{";
  return "";
}

class Fetcher {
 public:
  Fetcher(const Source& source, const std::string& folder, const FetchSourceOptions& options)
      : source_(source), folder_(folder), options_(options) {}

  void file(const SourceFile& wanted) const {
    const std::string sum = options_.sha256.empty()     ? wanted.sha256
                            : options_.sha256 == "none" ? std::string()
                                                        : options_.sha256;
    FetchOptions fetching;
    fetching.sha256 = sum;
    // With another address or sum, the file may be another one.
    const bool same = options_.sha256.empty();
    fetching.bytes = same && !sum.empty() ? wanted.bytes : -1;
    fetching.begin = beginning_of(wanted.path);
    fetching.retries = options_.retries;
    fetching.delay_ms = options_.delay_ms;
    fetching.say = [&](const std::string& why) { say("  " + why); };
    if (options_.progress)
      fetching.progress = [&](int64_t have, int64_t total) {
        options_.progress(wanted.path, have, total);
      };
    const auto urls = addresses(wanted);
    for (size_t i = 0; i < urls.size(); ++i) {
      say(fmt::format("{} from {}", wanted.path, urls[i]));
      try {
        const Fetched got = fetch(urls[i], folder_ + "/" + wanted.path, fetching);
        if (sum.empty())
          say(fmt::format("  no checksum known: computed SHA-256 {}, keep it", got.sha256));
        return;
      } catch (const Error& e) {
        if (i + 1 == urls.size()) throw;
        say(std::string("  ") + e.what());
      }
    }
  }

  void say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

 private:
  std::vector<std::string> addresses(const SourceFile& wanted) const {
    if (options_.url.empty()) return wanted.urls;
    if (source_.files.size() == 1 && !options_.url.ends_with('/')) return {options_.url};
    FRUGAL_CHECK(options_.url.ends_with('/'),
                 "[data] expected a URL that ends in / for the {} files of {}, got {}",
                 source_.files.size(), source_.name, options_.url);
    return {options_.url + fs::path(wanted.path).filename().string()};
  }

  const Source& source_;
  const std::string& folder_;
  const FetchSourceOptions& options_;
};

}  // namespace

const std::vector<Source>& sources() {
  static const std::vector<Source> all = make_sources();
  return all;
}

bool same_name(const std::string& a, const std::string& b) {
  const auto letters = [](const std::string& name) {
    std::string kept;
    for (const char c : name)
      if (c >= 'A' && c <= 'Z')
        kept += static_cast<char>(c - 'A' + 'a');
      else if (c != '-' && c != '_')
        kept += c;
    return kept;
  };
  return letters(a) == letters(b);
}

std::vector<std::string> data_folders(bool system) {
  const auto from = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::vector<std::string> all;
  if (const std::string folder = from("FRUGAL_DATA"); !folder.empty()) all.push_back(folder);
  if (const std::string home = from("HOME"); !home.empty())
    if (const std::string usual = home + "/.cache/frugal/datasets"; all != std::vector{usual})
      all.push_back(usual);
  if (system) all.emplace_back("/usr/share/datasets");
  return all;
}

const Source& find_source(const std::string& name) {
  const auto& all = sources();
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const Source& source) { return same_name(source.name, name); });
  std::vector<std::string> names;
  for (const Source& source : all) names.push_back(source.name);
  FRUGAL_CHECK(at != all.end(), "[data] expected one of {}, got {}", fmt::join(names, ", "),
               in_quotes(name));
  return *at;
}

std::vector<FileCheck> check_source(const Source& source, const std::string& folder) {
  std::vector<FileCheck> checks;
  for (const SourceFile& file : source.results()) checks.push_back(check_file(file, folder));
  return checks;
}

void fetch_source(const Source& source, const std::string& folder,
                  const FetchSourceOptions& options) {
  FRUGAL_CHECK(options.sha256.empty() || source.files.size() == 1,
               "[data] expected a source of one file for a checksum, got {} with {}", source.name,
               source.files.size());
  const auto checks = check_source(source, folder);
  const auto different = std::find_if(checks.begin(), checks.end(), [](const FileCheck& check) {
    return check.state == FileState::different;
  });
  const bool complete = std::all_of(checks.begin(), checks.end(),
                                    [](const FileCheck& check) { return is_there(check.state); });
  const Fetcher fetcher(source, folder, options);
  if (complete) return fetcher.say(fmt::format("{} is there", source.name));
  FRUGAL_CHECK(different == checks.end(),
               "[data] expected {}/{} as {} has it: {}; move it away first", folder,
               different->path, source.name, different->detail);
  if (!source.is_archive()) {
    for (size_t i = 0; i < checks.size(); ++i)
      if (!is_there(checks[i].state)) fetcher.file(source.files[i]);
    return;
  }
  const SourceFile& archive = source.files.front();
  const std::string path = folder + "/" + archive.path, target = folder + "/" + source.folder;
  std::error_code ignored;
  FRUGAL_CHECK(!fs::exists(target, ignored) || fs::is_empty(target, ignored),
               "[data] expected all files of {} in {}, or no such folder, got some; move it away "
               "first",
               source.name, target);
  // An interrupted call may have left an archive. It is checked like any other file.
  const FileCheck left = check_file(archive, folder);
  if (left.state == FileState::missing ||
      (left.state == FileState::different && options.sha256.empty()))
    fetcher.file(archive);
  fetcher.say(fmt::format("{} unpacked to {}", archive.path, source.folder));
  // If the archive holds other files, none of them stays. Without a known checksum, the archive
  // itself may be wrong; then it is renamed, so that the next call downloads it again.
  try {
    unpack(path, target, source.top, {}, [&](const std::string& made) {
      for (SourceFile file : source.results()) {
        const std::string wanted = file.path;
        file.path = fs::path(wanted).lexically_relative(source.folder).string();
        const FileCheck check = check_file(file, made);
        FRUGAL_CHECK(is_there(check.state), "[data] expected {} in the archive of {}, got {}",
                     wanted, source.name,
                     check.state == FileState::missing ? std::string("none") : check.detail);
      }
    });
  } catch (const Error& e) {
    if (check_file(archive, folder).state == FileState::good) throw;
    fs::rename(path, path + ".bad", ignored);
    throw Error(fmt::format("{}; the archive is kept as {}.bad", e.what(), path));
  }
  fs::remove(path, ignored);
}

}  // namespace frugal::data
