// Recipes of products with weights that do not train.
#pragma once

namespace frugal {

// While it lives, and `active`, this thread's products x weight^T with a weight that does not train
// have a recipe: the product of the rebuilt x. So a policy may leave out their outputs, and pay
// with the time of a product in the backward pass. Recipe: linear, where x has one. What is added
// to such an output by add_low_rank() is part of the recipe.
//
// The rebuilt output has the noise of x. A gradient that multiplies it with x, or with another
// output that is rebuilt from x, is biased by the variance of that noise. So the caller says which
// products it is sound for, and from how many bits on (SaveInfo::least_bits).
class ProductRecipes {
 public:
  explicit ProductRecipes(bool active, int least_bits = 0);
  ~ProductRecipes();
  ProductRecipes(const ProductRecipes&) = delete;
  ProductRecipes& operator=(const ProductRecipes&) = delete;
  static bool active();
  static int least_bits();

 private:
  bool previous_;
  int previous_bits_;
};

// While it lives, this thread's policy is told that recipes of products will read what it is asked
// about, and that they need so many bits (SaveInfo::source_bits).
class ProductSources {
 public:
  explicit ProductSources(int bits);
  ~ProductSources();
  ProductSources(const ProductSources&) = delete;
  ProductSources& operator=(const ProductSources&) = delete;
  static int bits();

 private:
  int previous_;
};

}  // namespace frugal
