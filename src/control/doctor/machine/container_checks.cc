#include "doctor/machine/container_checks.h"

namespace fulldeck::doctor {

std::vector<Check> ContainerChecks() {
  return {
      {"container-init", Group::kContainer, false,
       Bilingual(
           "finds out whether this is a container and which, orphans a process and watches for up to 5 s whether it is "
           "reaped, and counts the dead processes that wait for process 1",
           "判断是否在容器中及其类型；制造一个孤儿进程并在 5 秒内观察它是否被回收；统计等待 1 号进程的僵尸进程"),
       Bilingual("orphans of a run are reaped", "运行的孤儿进程会被回收"), CheckContainerInit, "C8"},
      {"device-nodes", Group::kContainer, false,
       Bilingual(
           "compares the cards on the PCI bus with the device nodes and control nodes here, and asks for access to "
           "each",
           "比较 PCI 总线上的卡与此处的设备节点、控制节点，并逐个检查访问权限"),
       Bilingual("every card of the machine can be opened by this user", "本用户能打开机器上的每张卡"),
       CheckDeviceNodes, "D2, I11"},
      {"vendor-libraries", Group::kContainer, false,
       Bilingual("looks for the libraries of the driver of every vendor whose card is on the bus",
                 "为总线上每个厂商的卡查找其驱动库"),
       Bilingual("the driver's user part is installed, or mounted into the container",
                 "驱动的用户态部分已安装或已挂载进容器"),
       CheckVendorLibraries, "D8, H1"},
      {"vendor-tool", Group::kContainer, false,
       Bilingual("looks for the vendor's tool that shows its cards (efsmi, nvidia-smi, npu-smi …)",
                 "查找厂商的查卡工具（efsmi、nvidia-smi、npu-smi 等）"),
       Bilingual("people and scripts can look at the cards", "人和脚本能够查看卡的状态"), CheckVendorTool, "H2"},
      {"shm-size", Group::kContainer, false,
       Bilingual("compares the size of /dev/shm with the 64 MiB that Docker gives by default",
                 "将 /dev/shm 大小与 Docker 默认的 64 MiB 比较"),
       Bilingual("the container was given shared memory on purpose", "容器的共享内存是有意配置的"), CheckShmSize, "H1"},
      {"system-calls", Group::kContainer, false,
       Bilingual(
           "makes sealed shared memory, passes a descriptor, opens a pidfd, sets its processors, reads a memory policy "
           "and the memory of a child process",
           "实际创建封印共享内存、传递描述符、打开 pidfd、设置处理器、读取内存策略和子进程的内存"),
       Bilingual("no seccomp profile takes away what collectives, launcher and NUMA binding need",
                 "没有 seccomp 策略禁用集合通信、启动器和 NUMA 绑定所需的调用"),
       CheckFacilities, "H1"},
      {"capabilities", Group::kContainer, false,
       Bilingual("reads the capabilities and the seccomp mode of this process, and whether RDMA adapters are there",
                 "读取本进程的权能和 seccomp 模式，以及是否有 RDMA 网卡"),
       Bilingual("nothing that is here lacks the right that it needs", "现有设备所需的权限都具备"), CheckCapabilities,
       "H1"},
  };
}

}  // namespace fulldeck::doctor
