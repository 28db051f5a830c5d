// A fake machine for tests: a small tree for /proc, /sys and /dev, a kernel with configurable answers, and the machine
// object that the checks take. In its initial state no check warns; each case breaks one thing.
//
// The cases of all groups are one table (fake_machine_test.cc): every check has a case that it must not report as ok,
// so that a check that always reports ok fails its test.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "doctor/check.h"
#include "doctor/network/peer_listener.h"
#include "temporary_folder.h"

namespace fulldeck::doctor {

// An interpreter whose own packages include neither torch nor a framework, whatever environment the tests run in.
inline constexpr char kSystemPython[] = "/usr/bin/python3";

class FakeSystemCalls : public SystemCalls {
 public:
  FileSystemSpace space{std::uint64_t{500} << 30, std::uint64_t{400} << 30, 1'000'000, 900'000};
  int space_error = 0;
  WallClock clock{1'800'000'000, true, {}};
  int write_error = 0;
  int reserve_error = 0;
  std::vector<base::Duration> sync_times{std::chrono::milliseconds(2), std::chrono::milliseconds(3)};
  int sync_error = 0;
  std::string refused_node;
  std::vector<Facility> facilities{{"memfd_create", 0}, {"SCM_RIGHTS", 0}, {"pidfd_open", 0}};
  std::vector<NetworkInterface> interfaces{{"lo", true, true, 65536, {"127.0.0.1"}},
                                           {"eth0", true, false, 1500, {"10.0.0.5"}},
                                           {"docker0", true, false, 1500, {"172.17.0.1"}}};
  OrphanFate orphan{true, 1, std::chrono::milliseconds(2)};
  int orphan_error = 0;
  HugePages huge_pages{true, true};
  std::string host_name = "node1";
  std::vector<std::string> resolved{"10.0.0.5"};
  int echo_error = 0;
  int port_error = 0;

  base::Result<FileSystemSpace> Space(const std::string& folder) const override;
  WallClock Clock() const override { return clock; }
  base::Result<void> WriteAndReadBack(const std::string& folder, std::size_t bytes) const override;
  base::Result<void> Reserve(const std::string& folder, std::uint64_t bytes) const override;
  base::Result<std::vector<base::Duration>> SyncTimes(const std::string& folder, int times,
                                                      base::Duration timeout) const override;
  base::Result<void> MayUse(const std::string& path) const override;
  std::vector<Facility> TryFacilities() const override { return facilities; }
  base::Result<OrphanFate> OrphanAProcess(base::Duration timeout) const override;
  HugePages TryHugePages() const override { return huge_pages; }
  std::vector<NetworkInterface> Interfaces() const override { return interfaces; }
  std::string HostName() const override { return host_name; }
  base::Result<std::vector<std::string>> Resolve(const std::string& name) const override;
  base::Result<void> Echo(const std::string& address) const override;
  base::Result<void> TryPort(int port) const override;
};

class FakeMachine {
 public:
  FakeMachine();
  ~FakeMachine();
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  // "/proc/meminfo"
  void Write(const std::string& absolute, std::string_view text) const { tree.Write(absolute.substr(1), text); }
  void Remove(const std::string& absolute) const;
  // Replaces `old` in the file, which must contain it.
  void Replace(const std::string& absolute, const std::string& old, const std::string& with) const;
  // An Enflame card on the bus with its device node and the files of its runtime; also in the inventory.
  device::Card& AddCard(int index);
  // Starts a process that lives until the end of the fake. Returns its pid.
  int StartSleeper();
  // Starts a peer listener on the loopback; "127.0.0.1:PORT" is then one of the machine's peers.
  void StartPeer(PeerFaults faults = {});

  testing::TemporaryFolder tree{access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"};
  FakeSystemCalls kernel;
  MachineUnderTest machine;

 private:
  std::vector<int> sleepers_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<PeerListener> listener_;
  std::thread peer_;
};

struct CheckCase {
  std::string_view id;
  std::string_view what;     // "too few cores"
  Verdict verdict;           // the worst verdict that the check must find
  std::string_view row;      // of a finding with that verdict; empty: any
  std::string_view reports;  // substring of the English evidence or fix of such a finding
  void (*arrange)(FakeMachine& fake);
};

std::vector<CheckCase> MachineCases();
std::vector<CheckCase> CardCases();
std::vector<CheckCase> StackCases();
std::vector<CheckCase> ContainerCases();
std::vector<CheckCase> NetworkCases();
std::vector<CheckCase> StorageCases();

// Compares what `check` reports with the case. Returns the difference; empty if there is none.
std::string Judge(const Check& check, const CheckCase& one);

}  // namespace fulldeck::doctor
