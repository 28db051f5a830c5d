#include "doctor/stack/vendor_needs.h"

namespace fulldeck::doctor {

std::span<const VendorNeeds> AllVendorNeeds() {
  static const std::vector<VendorNeeds> needs = {
      {"nvidia",
       {"/dev/nvidiactl", "/dev/nvidia-uvm"},
       {"libcuda.so.1", "libnvidia-ml.so.1"},
       {},
       "nvidia-smi",
       "docker run --gpus all (NVIDIA Container Toolkit)"},
      {"enflame",
       {"/dev/gcuctl"},
       {"libefml.so"},
       {"/opt/tops/lib", "/usr/local/tops/lib", "/usr/local/efsmi/lib"},
       "efsmi",
       "docker run --device /dev/gcuctl --device /dev/gcu0 … -v /usr/lib/libefml.so:/usr/lib/libefml.so -v "
       "/usr/bin/efsmi:/usr/bin/efsmi"},
      {"ascend",
       {"/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"},
       {"libdcmi.so", "libascend_hal.so"},
       {"/usr/local/Ascend/driver/lib64/driver", "/usr/local/Ascend/driver/lib64",
        "/usr/local/Ascend/driver/lib64/common", "/usr/local/dcmi"},
       "npu-smi",
       "docker run --device /dev/davinci0 … --device /dev/davinci_manager --device /dev/devmm_svm --device "
       "/dev/hisi_hdc "
       "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver -v /usr/local/dcmi:/usr/local/dcmi -v "
       "/usr/local/bin/npu-smi:/usr/local/bin/npu-smi"},
      {"cambricon",
       {"/dev/cambricon_ctl"},
       {"libcndev.so"},
       {"/usr/local/neuware/lib64"},
       "cnmon",
       "docker run --device /dev/cambricon_ctl --device /dev/cambricon_dev0 … -v /usr/bin/cnmon:/usr/bin/cnmon"},
      {"moorethreads", {}, {"libmtml.so"}, {"/usr/local/musa/lib"}, "mthreads-gmi", "docker run --runtime mthreads"},
      {"iluvatar",
       {},
       {"libixml.so"},
       {"/usr/local/corex/lib64", "/usr/local/corex/lib"},
       "ixsmi",
       "docker run --device /dev/iluvatar0 … -v /usr/local/corex:/usr/local/corex"},
      {"amd",
       {"/dev/kfd"},
       {},
       {"/opt/rocm/lib"},
       "",
       "docker run --device /dev/kfd --device /dev/dri --group-add video"},
      {"metax",
       {"/dev/mxcd"},
       {"libmxsml.so"},
       {"/opt/maca/lib", "/opt/mxdriver/lib"},
       "mx-smi",
       "docker run --device /dev/mxcd --device /dev/dri -v /opt/maca:/opt/maca"},
  };
  return needs;
}

const VendorNeeds* FindVendorNeeds(std::string_view vendor) {
  for (const VendorNeeds& needs : AllVendorNeeds()) {
    if (needs.vendor == vendor) return &needs;
  }
  return nullptr;
}

}  // namespace fulldeck::doctor
