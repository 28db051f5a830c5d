#include "device/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fulldeck::device {
namespace {

using testing::ElementsAre;

TEST(CpuList, IsReadAndWrittenAsTheKernelDoes) {
  EXPECT_THAT(ParseCpuList("0-3,8\n").value(), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(ParseCpuList("").value(), testing::IsEmpty());
  EXPECT_EQ(FormatCpuList({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  for (const char* wrong : {"x", "3-1", "0-99999", "1,,2", "-1", "0-1-2"}) EXPECT_FALSE(ParseCpuList(wrong)) << wrong;
}

TEST(Host, ShowsItsNodesAndMemory) {
  const base::SystemRoot root(std::string(FULLDECK_FIXTURES) + "/machines/8xT20");
  const HostTopology topology = ReadTopology(root);
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(topology.cpus.size(), topology.nodes[0].cpus.size() + topology.nodes[1].cpus.size());
  const Card host = ReadHost(root);
  EXPECT_EQ(host.kind, "cpu");
  EXPECT_TRUE(host.model.has_value());
  EXPECT_GT(host.memory_total_bytes.value(), host.telemetry.memory_used_bytes.value());
}

TEST(Host, ThatReportsNothingIsStillAHost) {
  const base::SystemRoot nowhere("/nonexistent/fulldeck");
  const Card host = ReadHost(nowhere);
  EXPECT_FALSE(host.model);
  EXPECT_FALSE(host.memory_total_bytes);
  const HostTopology topology = ReadTopology(nowhere);
  ASSERT_EQ(topology.nodes.size(), 1U);
  EXPECT_THAT(topology.nodes[0].cpus, testing::IsEmpty());
}

}  // namespace
}  // namespace fulldeck::device
