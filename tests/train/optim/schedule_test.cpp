#include "train/optim/schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace chargrad::optim {
namespace {

// The expected numbers come from nanoGPT's formula in Python's doubles, whose cosine is the same
// libm's, so that they are equal to the last bit. Another libm may round a cosine the other way:
// one unit in the last place of 1 + cos, hence 4 ulp (EXPECT_DOUBLE_EQ) are allowed.
void expect_rates(const Schedule& schedule, const std::vector<std::pair<int64_t, double>>& rates) {
  for (const auto& [iter, rate] : rates) {
    EXPECT_DOUBLE_EQ(schedule.at(iter), rate) << "iteration " << iter;
  }
}

TEST(Schedule, CpuRecipe) {
  expect_rates({1e-3, 1e-4, 100, 2000}, {{0, 9.900990099009901e-06},
                                         {1, 1.9801980198019803e-05},
                                         {50, 0.000504950495049505},
                                         {99, 0.0009900990099009901},
                                         {100, 0.001},
                                         {101, 0.0009999993848585915},
                                         {500, 0.0009051132292283772},
                                         {1050, 0.00055},
                                         {1999, 0.00010000061514140841},
                                         {2000, 0.0001},
                                         {2001, 0.0001},
                                         {1000000, 0.0001}});
}

TEST(Schedule, WarmUpStartsAboveZeroAndPeaksOnce) {
  const Schedule schedule{1.0, 0.1, 10, 100};
  EXPECT_DOUBLE_EQ(schedule.at(0), 1.0 / 11);
  int peaks = 0;
  for (int64_t iter = 0; iter < 200; ++iter) {
    EXPECT_LE(schedule.at(iter), 1.0);
    EXPECT_GE(schedule.at(iter), iter < 10 ? 1.0 / 11 : 0.1);
    peaks += schedule.at(iter) == 1.0 ? 1 : 0;
  }
  EXPECT_EQ(peaks, 1);
  EXPECT_EQ(schedule.at(10), 1.0);
}

// A resumed run asks for the iterations from the middle on and gets the straight run's rates.
TEST(Schedule, DependsOnTheIterationAlone) {
  expect_rates({1e-3, 1e-4, 5, 20}, {{4, 0.0008333333333333334},
                                     {5, 0.001},
                                     {10, 0.0007750000000000001},
                                     {15, 0.0003250000000000001},
                                     {19, 0.00010983357966978745},
                                     {20, 0.0001},
                                     {21, 0.0001}});
}

TEST(Schedule, WithoutWarmUp) {
  expect_rates({1e-3, 1e-4, 0, 3}, {{0, 0.001},
                                    {1, 0.0007750000000000001},
                                    {2, 0.0003250000000000001},
                                    {3, 0.0001},
                                    {4, 0.0001}});
  EXPECT_EQ((Schedule{1e-3, 1e-4, 0, 0}.at(0)), 1e-3);
  EXPECT_EQ((Schedule{1e-3, 1e-4, 0, 0}.at(1)), 1e-4);
}

TEST(Schedule, WarmUpAsLongAsTheDecayOrLonger) {
  const Schedule equal{1.0, 0.1, 4, 4};
  expect_rates(equal, {{0, 0.2}, {3, 0.8}, {4, 1.0}, {5, 0.1}, {6, 0.1}});
  const Schedule longer{1.0, 0.1, 9, 4};
  expect_rates(longer, {{0, 0.1}, {4, 0.5}, {8, 0.9}, {9, 0.1}, {10, 0.1}});
}

TEST(Schedule, ConstantWithoutDecay) {
  expect_rates({1e-2, 1e-3, 10, 100, /*decay_lr=*/false}, {{0, 1e-2}, {5, 1e-2}, {500, 1e-2}});
}

TEST(Schedule, ZeroRateStaysZero) {
  expect_rates({0.0, 0.0, 2, 5}, {{0, 0.0}, {2, 0.0}, {5, 0.0}, {9, 0.0}});
}

}  // namespace
}  // namespace chargrad::optim
