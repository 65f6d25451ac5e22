#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/memory_limit.h"

namespace firstlight {
namespace {

namespace fs = std::filesystem;

class ProcessorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() /
            ("processors_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "_" +
             std::to_string(getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(ProcessorsTest, QuotaOfTheSecondVersionAndOfGroupsAbove) {
  EXPECT_FALSE(processor_quota(root_).has_value());
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(processor_quota(root_).has_value());
  write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(processor_quota(root_), 1.5);
  write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(processor_quota(root_), 0.5);
}

TEST_F(ProcessorsTest, QuotaOfTheFirstVersion) {
  write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/box\n");
  write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(processor_quota(root_).has_value());
  write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(processor_quota(root_), 3.0);
}

TEST_F(ProcessorsTest, NonsenseIsNoLimit) {
  write("proc/self/cgroup", "0\n::\nx:y\n0::/../..\n");
  write("sys/fs/cgroup/cpu.max", "0 0\n");
  EXPECT_FALSE(processor_quota(root_).has_value());
}

TEST_F(ProcessorsTest, MemoryIsThatOfTheTightestGroup) {
  write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\nBuffers: 1 kB\n");
  EXPECT_EQ(available_memory(root_), 8000 * 1024);
  write("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/box\n0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/memory.max", "7000000\n");
  write("sys/fs/cgroup/a/memory.current", "1000000\n");
  EXPECT_EQ(available_memory(root_), 6000000);
  write("sys/fs/cgroup/a/memory.stat", "anon 400000\ninactive_file 500000\n");  // gives way
  EXPECT_EQ(available_memory(root_), 6500000);
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "3000000\n");
  write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/x/memory.stat", "inactive_file 7\ntotal_inactive_file 200000\n");
  EXPECT_EQ(available_memory(root_), 2200000);
  write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "5000000\n");
  EXPECT_EQ(available_memory(root_), 0);
}

TEST_F(ProcessorsTest, SiblingsComeLast) {
  const std::vector<int> ids = allowed_processors("/nowhere").ids;  // nothing known of cores: as they come
  ASSERT_FALSE(ids.empty());
  EXPECT_TRUE(std::ranges::is_sorted(ids));
  EXPECT_EQ(allowed_processors("/nowhere").cores, static_cast<int>(ids.size()));
  for (const int id : ids) {  // all on one core
    write("devices/system/cpu/cpu" + std::to_string(id) + "/topology/thread_siblings_list", "0-7\n");
  }
  const Processors one_core = allowed_processors(root_);
  EXPECT_EQ(one_core.ids, ids);
  EXPECT_EQ(one_core.cores, 1);
}

TEST_F(ProcessorsTest, AThreadIsPinned) {
  const std::vector<int> ids = allowed_processors().ids;
  ASSERT_FALSE(ids.empty());
  int processor = -1;
  bool pinned = false;
  std::thread([&] {
    pinned = pin_to(ids.back());
    processor = sched_getcpu();
  }).join();
  EXPECT_TRUE(pinned);
  EXPECT_EQ(processor, ids.back());
  EXPECT_FALSE(pin_to(-1));
  EXPECT_FALSE(pin_to(1 << 20));
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), static_cast<int>(ids.size()));
}

}  // namespace
}  // namespace firstlight
