// Trains a classifier on MNIST or Fashion-MNIST; what backward needs is kept in 4 bits.
// usage: mnist [FOLDER]   with train-images-idx3-ubyte and so on; without it, drawn bars stand in.
#include <frugal/frugal.h>

#include <cstdio>

using namespace frugal;

// [count, 28, 28, 1]: class c is a bright bar at row 2 c + 4, under noise.
DatasetPtr bars(int64_t count, uint64_t seed) {
  Tensor images = Tensor::empty({count, 28, 28, 1}), labels = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    labels.mut<int64_t>()[i] = i % 10;
    for (int64_t at = 0; at < 28 * 28; ++at)
      images.mut<float>()[i * 784 + at] =
          0.5f * normal({seed, 0}, uint64_t(i * 784 + at)) + float(at / 28 == 2 * (i % 10) + 4);
  }
  return std::make_shared<data::MemoryDataset>(images, labels, 10);
}

int main(int argc, char** argv) {
  limit_spinning(argv);
  const bool real = argc > 1;
  data::Loader images(real ? data::open_idx(argv[1], true) : bars(2560, 1), {.batch_size = 128});
  data::Loader unseen(real ? data::open_idx(argv[1], false) : bars(512, 2), {.shuffle = false});

  models::Init init;
  const auto net = models::make(
      "mlp",
      {{"in_features", 784}, {"hidden", std::vector<int64_t>{256, 128}}, {"num_classes", 10}},
      init);
  optim::Sgd sgd(net->parameters(), {.momentum = 0.9});

  const auto last = train::fit(*net, sgd, optim::constant_schedule(0.02), images,
                               {.epochs = 2, .test = &unseen, .compression = {compress::bits(4)}});
  std::printf("test accuracy %.2f %%\n", 100 * last->test.accuracy);
  return last->test.accuracy > 0.8 ? 0 : 1;
}
