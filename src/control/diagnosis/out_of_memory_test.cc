#include "diagnosis/out_of_memory.h"

#include <gtest/gtest.h>

namespace fulldeck::diagnosis {
namespace {

TEST(OutOfMemory, OfTorch1WithTinyOwnUseBesideTinyFreeIsAnotherProcess) {
  EXPECT_EQ(WhoHoldsTheMemory("RuntimeError: CUDA out of memory. Tried to allocate 14.00 MiB (GPU 0; 10.76 GiB total "
                              "capacity; 15.00 MiB already allocated; 10.69 MiB free; 22.00 MiB reserved in total by "
                              "PyTorch)"),
            MemoryHog::kAnotherProcess);
}

TEST(OutOfMemory, OfTorch1WithAllOfTheCardReservedIsThisProcess) {
  EXPECT_EQ(WhoHoldsTheMemory("RuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 3; 23.70 GiB total "
                              "capacity; 21.02 GiB already allocated; 80.81 MiB free; 22.11 GiB reserved in total by "
                              "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb"),
            MemoryHog::kThisProcess);
}

TEST(OutOfMemory, OfTorchBefore14CountsWhatIsCached) {
  EXPECT_EQ(WhoHoldsTheMemory("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total "
                              "capacity; 2.10 GiB already allocated; 12.56 MiB free; 7.30 GiB cached)"),
            MemoryHog::kThisProcess);
  EXPECT_EQ(WhoHoldsTheMemory("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total "
                              "capacity; 310.00 MiB already allocated; 12.56 MiB free; 25.00 MiB cached)"),
            MemoryHog::kAnotherProcess);
}

TEST(OutOfMemory, OfAscendInTheFormatOfTorch1) {
  EXPECT_EQ(
      WhoHoldsTheMemory("RuntimeError: NPU out of memory. Tried to allocate 1.50 GiB (NPU 2; 60.97 GiB total "
                        "capacity; 57.80 GiB already allocated; 57.80 GiB current active; 310.21 MiB free; 59.16 GiB "
                        "reserved in total by PyTorch)"),
      MemoryHog::kThisProcess);
}

TEST(OutOfMemory, OfTorch2NamesTheOtherProcess) {
  EXPECT_EQ(
      WhoHoldsTheMemory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 542.00 MiB. GPU 0 has a total "
                        "capacity of 31.75 GiB of which 146.00 MiB is free. Process 1234 has 28.6 GiB memory in use. "
                        "Including non-PyTorch memory, this process has 2.97 GiB memory in use. Of the allocated "
                        "memory 2.5 GiB is allocated by PyTorch, and 90.00 MiB is reserved by PyTorch but "
                        "unallocated."),
      MemoryHog::kAnotherProcess);
}

TEST(OutOfMemory, OfTorch20WithItsMisspelling) {
  EXPECT_EQ(
      WhoHoldsTheMemory("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
                        "total capacty of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this "
                        "process has 77.93 GiB memory in use. Of the allocated memory 71.40 GiB is allocated by "
                        "PyTorch, and 5.02 GiB is reserved by PyTorch but unallocated."),
      MemoryHog::kThisProcess);
  EXPECT_EQ(
      WhoHoldsTheMemory("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a "
                        "total capacty of 23.69 GiB of which 8.69 MiB is free. Process 77 has 23.10 GiB memory in "
                        "use. Including non-PyTorch memory, this process has 482.00 MiB memory in use."),
      MemoryHog::kAnotherProcess);
}

TEST(OutOfMemory, OfTorch2InAContainerWhereOurselvesIsOneOfTheProcesses) {
  EXPECT_EQ(
      WhoHoldsTheMemory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total "
                        "capacity of 79.33 GiB of which 1.06 GiB is free. Process 90210 has 78.26 GiB memory in use. "
                        "Of the allocated memory 40.10 GiB is allocated by PyTorch, and 36.50 GiB is reserved by "
                        "PyTorch but unallocated."),
      MemoryHog::kThisProcess);
}

TEST(OutOfMemory, OfHipWithNotAByteFree) {
  EXPECT_EQ(
      WhoHoldsTheMemory("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 76.00 MiB. GPU 1 has a total "
                        "capacity of 63.98 GiB of which 0 bytes is free. Of the allocated memory 61.59 GiB is "
                        "allocated by PyTorch, and 1.39 GiB is reserved by PyTorch but unallocated."),
      MemoryHog::kThisProcess);
}

TEST(OutOfMemory, IgnoresAnImpossibleFigureOfTheDriver) {
  EXPECT_EQ(
      WhoHoldsTheMemory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total "
                        "capacity of 24.00 GiB of which 0 bytes is free. Including non-PyTorch memory, this process "
                        "has 17179869184.00 GiB memory in use. Of the allocated memory 2.00 GiB is allocated by "
                        "PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."),
      MemoryHog::kAnotherProcess);
}

TEST(OutOfMemory, WithoutNumbersDecidesNothing) {
  EXPECT_EQ(WhoHoldsTheMemory("RuntimeError: CUDA error: out of memory"), std::nullopt);
  EXPECT_EQ(WhoHoldsTheMemory("GPU 0 has a total capacity of which is free. this process has"), std::nullopt);
  EXPECT_EQ(WhoHoldsTheMemory(""), std::nullopt);
}

}  // namespace
}  // namespace fulldeck::diagnosis
