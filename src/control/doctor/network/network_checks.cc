#include "doctor/network/network_checks.h"

namespace fulldeck::doctor {
namespace {

// Hosts that were named are waited for, one after the other.
constexpr base::Duration kPeerLimit = std::chrono::seconds(60);

}  // namespace

std::vector<Check> NetworkChecks() {
  return {
      {"loopback", Group::kNetwork, false,
       Bilingual("binds a port on 127.0.0.1, connects to it, and sends bytes both ways",
                 "在 127.0.0.1 绑定端口、连接并双向收发数据"),
       Bilingual("ranks of one host can talk to each other", "同一主机的 rank 能互相通信"), CheckLoopback, "I9"},
      {"interface", Group::kNetwork, false,
       Bilingual("lists interfaces and routes, and finds the one that collectives take",
                 "列出网卡与路由，找出集合通信会使用的网卡"),
       Bilingual("it is clear which interface that is, and it is up", "使用哪块网卡是明确的，且已启用"), CheckInterface,
       "A5"},
      {"interface-variables", Group::kNetwork, false,
       Bilingual(
           "compares GLOO_, NCCL_, ECCL_, HCCL_, MCCL_ and TP_SOCKET_IFNAME and HCCL_IF_IP with the interfaces here",
           "将 GLOO_、NCCL_、ECCL_、HCCL_、MCCL_、TP_SOCKET_IFNAME 及 HCCL_IF_IP 与现有网卡比较"),
       Bilingual("no variable names an interface that is not here, is down, or leads nowhere",
                 "没有变量指向不存在、未启用或无法到达的网卡"),
       CheckInterfaceVariables, "A5"},
      {"host-name", Group::kNetwork, false,
       Bilingual("looks up this host's own name, and compares the answer with its addresses",
                 "解析本机主机名，并与本机地址比较"),
       Bilingual("other ranks are told an address that leads here", "其他 rank 得到的地址能到达本机"), CheckHostName,
       "A5"},
      {"master-port", Group::kNetwork, false,
       Bilingual("binds MASTER_PORT, or 29500 where it is not set, and lets it go",
                 "绑定 MASTER_PORT（未设置则为 29500）后释放"),
       Bilingual("rank 0's store can listen there; who has the port otherwise is named",
                 "rank 0 的 store 能监听该端口；被占用时指出占用者"),
       CheckMasterPort, "C5"},
      {"card-links", Group::kNetwork, false,
       Bilingual("compares the width of every card's PCIe link with what card and slot can do",
                 "比较每张卡 PCIe 链路的宽度与其最大能力"),
       Bilingual("no card sits on a part of its lanes", "没有卡只用到部分通道"), CheckCardLinks},
      {"peer-to-peer", Group::kNetwork, false,
       Bilingual("reads the cards' NUMA nodes and how the IOMMU treats them",
                 "读取各卡的 NUMA 节点以及 IOMMU 对其的处理方式"),
       Bilingual("copies from card to card are not known to hang here; else names the variable that turns them off",
                 "卡间直接拷贝没有已知的挂起风险；否则给出关闭它的变量"),
       CheckPeerToPeer, "I3"},
      {"peer-reach", Group::kNetwork, false,
       Bilingual("connects to every host of --hosts and sends 20 small messages there and back",
                 "连接 --hosts 中每台主机，往返 20 条小消息"),
       Bilingual("the hosts reach each other, and how fast", "主机之间可达，并给出时延"), CheckPeerReach, "I9",
       kPeerLimit},
      {"peer-mtu", Group::kNetwork, false,
       Bilingual("sends datagrams of the interface's MTU that may not be cut up",
                 "发送不允许分片、大小等于网卡 MTU 的数据报"),
       Bilingual("no switch or tunnel on the way swallows large packets", "途中没有交换机或隧道吞掉大包"), CheckPeerMtu,
       "I9"},
      {"peer-bandwidth", Group::kNetwork, false,
       Bilingual("sends to every host of --hosts for half a second (2 s with --deep) and lets it count",
                 "向 --hosts 每台主机发送半秒（--deep 为 2 秒），由对方计数"),
       Bilingual("gradients get across: 100 MB/s at least", "梯度传得过去：至少 100 MB/s"), CheckPeerBandwidth, "I9",
       kPeerLimit},
  };
}

}  // namespace fulldeck::doctor
