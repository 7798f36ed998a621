// Predicts with the network of a run of `frugal train`.
// usage: predict RUN [PICTURE...]   without pictures, a grey one stands in.
#include <frugal/frugal.h>

#include <cstdio>

using namespace frugal;

void print(const std::string& name, const train::Prediction& top) {
  std::printf("%s\n", name.c_str());
  for (const train::Guess& guess : top)
    std::printf("  %5.1f %%  %s\n", 100 * guess.probability, guess.name.c_str());
}

int main(int argc, char** argv) try {
  limit_spinning(argv);
  if (argc < 2) {
    std::printf("usage: predict RUN [PICTURE...]\n");
    return 2;
  }
  const std::string run = argv[1];
  const train::Model model = train::load(run);
  int unread = 0;
  for (int i = 2; i < argc; ++i) {
    const std::string picture = argv[i];
    try {
      print(picture, model.predict(picture));
    } catch (const Error& e) {  // only this file failed: the others may be read
      std::fprintf(stderr, "%s\n", e.what());
      ++unread;
    }
  }
  if (argc == 2) {
    const Tensor grey = Tensor::full(model.description().spec.sample, 0.5);  // [H, W, C] in [0, 1]
    print("a grey picture", model.predict(grey, {.top = 3}));
  }
  return unread == 0 ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return 1;
}
