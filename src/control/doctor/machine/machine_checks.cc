#include "doctor/machine/machine_checks.h"

namespace fulldeck::doctor {

std::vector<Check> MachineChecks() {
  return {
      {"cores", Group::kMachine, false,
       Bilingual("counts the processors that this process is allowed on, less what a cgroup quota takes away",
                 "统计本进程可用的处理器，并扣除 cgroup 配额"),
       Bilingual("every rank has a processor of its own", "每个 rank 都有自己的处理器"), CheckCores},
      {"memory", Group::kMachine, false,
       Bilingual(
           "reads what the machine and every cgroup (v1 and v2) above this process have left, and divides it by the "
           "ranks",
           "读取机器以及本进程上层各 cgroup（v1 与 v2）的剩余内存，并按 rank 平分"),
       Bilingual("2 GiB of host memory for each rank: an interpreter, torch, a vendor's runtime and some batches",
                 "每个 rank 有 2 GiB 主机内存：解释器、torch、厂商运行时和若干批次"),
       CheckMemory, "I2"},
      {"loader-workers", Group::kMachine, false,
       Bilingual("multiplies --workers and ranks, and compares with the processors",
                 "用 --workers 乘以 rank 数，与处理器数比较"),
       Bilingual("loaders and ranks do not take each other's processors", "数据加载进程与 rank 不争抢处理器"),
       CheckLoaderWorkers},
      {"open-files", Group::kMachine, false,
       Bilingual("reads the limit of open files of this session, which ranks inherit",
                 "读取本会话的打开文件数上限（rank 会继承）"),
       Bilingual("sockets to all ranks and the loaders' batches fit below it",
                 "到各 rank 的套接字与数据加载批次都放得下"),
       CheckOpenFiles, "H1"},
      {"processes", Group::kMachine, false,
       Bilingual(
           "reads the limits of processes and threads, of the user (ulimit -u) and of every cgroup (pids.max), less "
           "what "
           "runs already: threads of this user in /proc, pids.current",
           "读取进程/线程数上限（用户级 ulimit -u 与各 cgroup 的 pids.max），并扣除已在运行的：/proc "
           "中本用户的线程、pids.current"),
       Bilingual("all ranks, their threads and their loaders can be started",
                 "所有 rank、其线程及数据加载进程都能启动"),
       CheckProcesses, "H1"},
      {"locked-memory", Group::kMachine, false,
       Bilingual("reads the limit of locked memory, whether CAP_IPC_LOCK lifts it, and whether RDMA adapters need it",
                 "读取锁定内存上限、CAP_IPC_LOCK 是否免除该上限，以及 RDMA 网卡是否需要"),
       Bilingual("buffers can be pinned for cards and for RDMA", "可以为加速卡和 RDMA 锁定缓冲区"), CheckLockedMemory,
       "H1"},
      {"core-files", Group::kMachine, false,
       Bilingual("reads the limit of core files and where the kernel would write them",
                 "读取 core 文件上限及内核写入位置"),
       Bilingual("a crash of all ranks does not fill the disk with their memory",
                 "所有 rank 崩溃时不会用内存镜像写满磁盘"),
       CheckCoreFiles, "I5"},
      {"shm", Group::kMachine, false,
       Bilingual("writes 1 MiB to /dev/shm, reads it back, removes it, and reads what is free",
                 "向 /dev/shm 写入 1 MiB、读回、删除，并读取剩余空间"),
       Bilingual("batches of data loaders and shared memory of libraries have room: 128 MiB for each worker",
                 "数据加载批次和库的共享内存放得下：每个 worker 128 MiB"),
       CheckShm, "H1"},
      {"clock", Group::kMachine, false,
       Bilingual("compares the wall clock with the age of this program and, for 30 ms, with the steady clock; asks the "
                 "kernel "
                 "whether it is synchronised",
                 "将系统时间与本程序的年代比较，并与单调时钟比对 30 毫秒；询问内核时间是否已同步"),
       Bilingual("times in logs of several hosts can be compared, certificates and resumes work",
                 "多主机日志时间可比，证书和续训可用"),
       CheckClock},
      {"huge-pages", Group::kMachine, false,
       Bilingual(
           "asks for a huge page of anonymous memory and one of a memfd, touches both, and reads from smaps whether "
           "they "
           "were given",
           "分别为匿名内存和 memfd 申请一个大页，写入后从 smaps 读取是否得到"),
       Bilingual("whether staged checkpoints (anonymous) and collectives (memfd) have huge pages; a denied memfd is "
                 "reported, "
                 "not counted as a fault",
                 "检查点缓冲（匿名内存）与集合通信（memfd）是否使用大页；memfd 得不到时只报告，不算故障"),
       CheckHugePages},
      {"left-runs", Group::kMachine, false,
       Bilingual("reads the registry of runs, and looks for the processes and cgroups of those whose launcher is dead",
                 "读取运行登记，查找启动器已死的运行所遗留的进程和 cgroup"),
       Bilingual("no rank of a dead run still holds a card or a port", "没有死掉的运行遗留的 rank 占着卡或端口"),
       CheckLeftRuns, "C8"},
      {"left-files", Group::kMachine, false,
       Bilingual("lists /dev/shm for segments of torch whose process is dead",
                 "列出 /dev/shm 中所属进程已死的 torch 共享内存段"),
       Bilingual("killed runs do not keep host memory", "被杀的运行没有继续占用主机内存"), CheckLeftFiles, "H1"},
      {"card-holders", Group::kMachine, false,
       Bilingual("asks the vendor's library, else /proc, who has each card open, and finds the owner and the run",
                 "通过厂商库或 /proc 查出谁打开了每张卡、属于哪个用户和哪次运行"),
       Bilingual("the cards are free", "加速卡空闲"), CheckCardHolders, "C8"},
  };
}

}  // namespace fulldeck::doctor
