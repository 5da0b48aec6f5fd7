#include "common/tensor/tensor.h"

#include <gtest/gtest.h>

#include "stage0_serial/naive_backend.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

TEST(ShapeTest, counts_its_elements) {
  EXPECT_EQ((Shape{2, 3, 4}).numel(), 24);
  EXPECT_EQ((Shape{2, 0, 4}).numel(), 0);
  EXPECT_EQ(Shape{}.numel(), 1);
}

TEST(ShapeTest, is_indexed_from_both_ends) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_THROW(shape[3], InternalError);
  EXPECT_THROW(shape[-4], InternalError);
}

TEST(ShapeTest, equals_one_of_the_same_extents_and_rank) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
}

TEST(ShapeTest, refuses_what_is_no_shape) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), InternalError);
  EXPECT_THROW((Shape{2, -1}), InternalError);
}

TEST(ShapeTest, is_written_in_parentheses) { EXPECT_EQ(concat(Shape{2, 3}), "(2, 3)"); }

class TensorTest : public testing::Test {
 protected:
  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  const Tensor x_ = to_tensor(*backend_, DType::f32, {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
};

TEST_F(TensorTest, a_view_is_the_same_memory_under_another_shape) {
  const Tensor view = x_.view({2, 6});
  EXPECT_TRUE(view.same_memory(x_));
  EXPECT_EQ(view.shape(), (Shape{2, 6}));
  EXPECT_THROW(x_.view({5}), InternalError);
}

TEST_F(TensorTest, a_slice_is_a_place_in_the_same_memory) {
  const Tensor slice = x_.slice(4, {2, 2});
  EXPECT_EQ(to_values(*backend_, slice), (Values{4, 5, 6, 7}));
  EXPECT_EQ(to_values(*backend_, slice.slice(1, {2})), (Values{5, 6}));
  EXPECT_FALSE(slice.same_memory(x_));
  backend_->fill(slice, -1);
  EXPECT_EQ(to_values(*backend_, x_), (Values{0, 1, 2, 3, -1, -1, -1, -1, 8, 9, 10, 11}));
}

TEST_F(TensorTest, a_slice_stays_inside) {
  EXPECT_NO_THROW(x_.slice(10, {2}));
  EXPECT_THROW(x_.slice(10, {3}), InternalError);
  EXPECT_THROW(x_.slice(-1, {2}), InternalError);
  EXPECT_THROW(x_.slice(4, {4}).slice(0, {5}), InternalError);
}

TEST_F(TensorTest, is_read_as_its_own_type_only) {
  EXPECT_NO_THROW(x_.data<float>());
  EXPECT_THROW(x_.data<double>(), InternalError);
  EXPECT_THROW(x_.data<std::int32_t>(), InternalError);
  EXPECT_THROW(Tensor().data<float>(), InternalError);
}

TEST_F(TensorTest, knows_whether_it_is_the_only_holder_of_its_memory) {
  EXPECT_TRUE(x_.sole_owner());
  {
    const Tensor slice = x_.slice(0, {1});
    EXPECT_FALSE(x_.sole_owner());
  }
  EXPECT_TRUE(x_.sole_owner());
}

TEST_F(TensorTest, returns_its_memory_with_the_last_holder_even_after_the_backend) {
  std::unique_ptr<Backend> backend = make_naive_backend();
  Tensor x = backend->zeros(DType::f64, {1000}), slice = x.slice(5, {1});
  EXPECT_GE(backend->memory_stats().bytes_in_use, 8000);
  x = Tensor();
  EXPECT_GE(backend->memory_stats().bytes_in_use, 8000);
  EXPECT_EQ(*slice.data<double>(), 0);
  slice = Tensor();
  EXPECT_EQ(backend->memory_stats().bytes_in_use, 0);
  Tensor late = backend->zeros(DType::f64, {3});
  backend.reset();
  EXPECT_EQ(*late.data<double>(), 0);
}

TEST_F(TensorTest, may_be_empty) {
  const Tensor empty = backend_->allocate(DType::f32, {0, 5});
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_TRUE(to_values(*backend_, empty).empty());
}

}  // namespace
}  // namespace stagegpt::test
