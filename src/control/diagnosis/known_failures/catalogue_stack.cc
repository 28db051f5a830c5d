// Chapters D and E: vendor stack, Python packages.
#include "diagnosis/known_failures/catalogue.h"

namespace fulldeck::diagnosis {

std::vector<CatalogueEntry> StackEntries() {
  return {
      {
          .id = "D1",
          .title = "vendor's torch module not installed",
          .english =
              {"The Python module that brings the card into torch is not in this environment: the second step of the "
               "vendor's installation was left out, or another interpreter runs.",
               "Install the vendor's wheel that fits this torch and Python (Enflame: torch_gcu or ptex from the "
               "TopsRider package), with the pip of the same interpreter: python -m pip install torch_gcu-*.whl."},
          .chinese = {"当前环境缺少让 torch 使用该卡的厂商模块：漏了厂商安装的第二步，或用错了解释器。",
                      "用同一个解释器的 pip 安装与 torch、Python 版本配套的厂商包（燧原：TopsRider 安装包中的 "
                      "torch_gcu 或 ptex）：python -m pip install torch_gcu-*.whl。"},
          .any_of = {{"No module named 'torch_gcu"},
                     {"No module named torch_gcu"},
                     {"No module named 'ptex"},
                     {"No module named ptex"},
                     {"Error: No module named 'torch_dtu"},
                     {"Error: No module named 'torch_npu"},
                     {"Error: No module named 'torch_mlu"},
                     {"Error: No module named 'torch_musa"},
                     {"Error: No module named 'torch_xla"},
                     {"Error: No module named 'intel_extension_for_pytorch"}},
          .unless = {"INFO", "DEBUG", "UserWarning"},
      },
      {
          .id = "D2",
          .title = "driver tools see no card",
          .english = {"The vendor's library cannot reach the driver: mostly a container without the device nodes, or a "
                      "driver module that is not loaded.",
                      "Compare ls /dev/gcu* (Ascend: /dev/davinci*) inside and outside. Start the container with the "
                      "nodes and driver folder, for example docker run --device /dev/gcu0 --device /dev/gcuctl or "
                      "--privileged; on the host check lsmod | grep gcu."},
          .chinese = {"厂商库连不上驱动：多半是容器没有挂载设备节点，或驱动模块未加载。",
                      "对比容器内外的 ls /dev/gcu*（昇腾：/dev/davinci*）；启动容器时加上设备节点和驱动目录，如 docker "
                      "run --device /dev/gcu0 --device /dev/gcuctl 或 --privileged；在主机上检查 lsmod | grep gcu。"},
          .any_of = {{"GCU count:0"},
                     {"GCU count: 0"},
                     {"GCU Count: 0"},
                     {"HAL initialization failed"},
                     {"ailed to initialize efml"},
                     {"EFML", "nit", "failed"},
                     {"dcmi module initialize failed"},
                     {"dcmi model initialized failed"},
                     {"DrvMngGetConsoleLogLevel failed"},
                     {"cannot open device /dev/gcu"},
                     {"open /dev/gcu", "No such file or directory"},
                     {"/dev/davinci", "No such file or directory"},
                     {"Unable to open /dev/kfd"}},
      },
      {
          .id = "D4",
          .title = "eccl is not a Python module",
          .english = {"The code imports eccl. ECCL is a C library that comes with the driver stack; there is no Python "
                      "module of that name.",
                      "Remove the import. Look for the library with: ldconfig -p | grep eccl, and use what the "
                      "vendor's torch module offers for collectives."},
          .chinese = {"代码导入了 eccl。ECCL 是随驱动栈安装的 C 库，没有同名的 Python 模块。",
                      "删除该导入；用 ldconfig -p | grep eccl 查找库文件，并使用厂商 torch 模块提供的集合通信。"},
          .any_of = {{"No module named 'eccl"}, {"No module named eccl"}},
          .unless = {"INFO", "DEBUG"},
      },
      {
          .id = "D5",
          .title = "vendor path in the profile does not exist",
          .confidence = Confidence::kLikely,
          .english = {"A script or profile names a folder of the vendor's stack that is not on this machine; stacks "
                      "install to different places.",
                      "Find the real place (ls -d /opt/tops /usr/local/tops; ldconfig -p | grep -i tops), correct "
                      "LD_LIBRARY_PATH and PATH in the profile, and see what is loaded with: LD_DEBUG=libs python -c "
                      "'import torch_gcu'."},
          .chinese = {"脚本或 profile 中写的厂商软件栈目录在本机不存在；不同版本安装位置不同。",
                      "查出真实位置（ls -d /opt/tops /usr/local/tops；ldconfig -p | grep -i tops），改正 "
                      "LD_LIBRARY_PATH 和 PATH，并用 LD_DEBUG=libs python -c 'import torch_gcu' 查看实际加载的库。"},
          .any_of = {{"/opt/tops", "No such file or directory"},
                     {"/usr/local/tops", "No such file or directory"},
                     {"/opt/tops", "does not exist"},
                     {"/usr/local/tops", "does not exist"},
                     {"/usr/local/Ascend", "set_env.sh: No such file or directory"}},
          .unless = {"cannot open shared object file", "INFO"},
      },
      {
          .id = "D7",
          .title = "torch does not fit the vendor's module",
          .english = {"The vendor's module was built for another torch than the one installed: mostly a plain pip "
                      "install pulled stock torch over the vendor's.",
                      "Compare: pip list | grep -i torch. Reinstall the torch that the vendor names for its module, "
                      "and install other requirements with --no-deps or with a constraint file that pins torch."},
          .chinese =
              {"厂商模块对应的 torch 与当前安装的不一致：多半是普通 pip install 把通用 torch 覆盖到了厂商版本上。",
               "用 pip list | grep -i torch 对比版本；重装厂商指定的 torch，其余依赖用 --no-deps 或固定 torch "
               "版本的约束文件安装。"},
          .any_of = {{"torch-gcu", "requires torch", "but you have torch"},
                     {"torch_gcu", "requires torch", "but you have torch"},
                     {"torch-npu", "requires torch", "but you have torch"},
                     {"torch-mlu", "requires torch", "but you have torch"},
                     {"torch_gcu", "undefined symbol"},
                     {"torch_npu", "undefined symbol"},
                     {"torch_mlu", "undefined symbol"},
                     {"torch_musa", "undefined symbol"},
                     {"torch_xla", "undefined symbol"},
                     {"_XLAC", "undefined symbol"},
                     {"Uninstalling torch-", "+gcu"},
                     {"Attempting uninstall: torch", "+gcu"},
                     {"torch_gcu", "version", "mismatch"},
                     {"Failed to load the backend extension: torch_"}},
      },
      {
          .id = "D8",
          .title = "shared library missing or of another version",
          .english =
              {"The loader did not find a library that a module needs, or found one too old or too new for it. A "
               "missing libtorch*, libc10* or libcaffe2* means a module built for another torch.",
               "See what is missing: ldd PATH/TO/MODULE.so | grep 'not found'. Install that library or add its folder "
               "to LD_LIBRARY_PATH; for a version line, install the runtime that the module was made with."},
          .chinese = {"加载器找不到模块需要的库，或找到的版本过旧或过新。缺少 libtorch*、libc10*、libcaffe2* "
                      "说明该模块是为另一版本的 torch 编译的。",
                      "用 ldd 模块.so | grep 'not found' 查出缺少的库；安装它，或把所在目录加入 "
                      "LD_LIBRARY_PATH；若是版本不符，安装与该模块配套的运行库。"},
          .any_of = {{"cannot open shared object file"},
                     {"version `", "not found (required by"},
                     {"version `CAPS_", "not found"},
                     {"version 'CAPS_", "not found"},
                     {"version `GLIBC", "not found"},
                     {"undefined symbol: __nvJitLink"},
                     {"undefined symbol: nccl"},
                     {"undefined symbol: cublas"},
                     {"undefined symbol: cudnn"},
                     {"undefined symbol: cuda"},
                     {"undefined symbol: iJIT_NotifyEvent"},
                     {"undefined symbol: tops"},
                     {"undefined symbol: eccl"},
                     {"OSError: ", ".so", "cannot open", "library"},
                     {"Could not load library libcudnn"},
                     {"Unable to load any of {libcudnn"}},
          .unless = {"NET/Plugin",
                     "libnccl-net",
                     "libnccl-tuner",
                     "libnccl-profiler",
                     "NCCL INFO",
                     "NCCL WARN",
                     "TUNER/Plugin",
                     "PROFILER/Plugin",
                     "Could not load dynamic library",
                     "dso_loader",
                     "cannot be preloaded",
                     "LD_PRELOAD",
                     "ignored",
                     "UserWarning",
                     "RuntimeWarning",
                     "WARNING",
                     "Warning:",
                     "warn(",
                     "INFO",
                     "DEBUG",
                     "couldn't load driver",
                     "Failed to load image Python extension",
                     "libGL.so",
                     "libgthread-2.0",
                     "libSM.so",
                     "libXrender",
                     "libXext",
                     "libEGL",
                     "libICE.so",
                     "libglib-2.0",
                     "pkcs11"},
      },
      {
          .id = "D9",
          .title = "library file is a stub or damaged",
          .english = {"A file with a library's name is not one: an empty or hand-made placeholder left by an earlier "
                      "fix, a text file, or a copy cut short.",
                      "Look at it: ls -lL FILE; file -L FILE; dpkg -S FILE. Delete the stub and reinstall the package "
                      "that owns the real library."},
          .chinese = {"名为动态库的文件并不是真正的库：可能是先前“修复”留下的空壳或占位文件、文本文件，或复制不完整。",
                      "用 ls -lL、file -L、dpkg -S 检查该文件；删除占位文件并重装拥有真正库文件的软件包。"},
          .any_of = {{".so", "file too short"},
                     {".so", "invalid ELF header"},
                     {"ELF file's phentsize not the expected size"},
                     {".so", "ELF load command past end of file"},
                     {".so", "wrong ELF class"}},
          .unless = {"cannot be preloaded", "ignored"},
      },
      {
          .id = "E1",
          .title = "package versions that do not fit together",
          .english = {"Two installed packages belong to different releases; the text names the package and, mostly, "
                      "the versions it accepts.",
                      "Install a pair that fits, for example: mim install \"mmcv>=2.0.0rc4,<2.2.0\" for mmseg 1.x or "
                      "mmdet 3.x, mmcv-full 1.x for the older ones; else pip install \"PACKAGE==VERSION\" as the "
                      "message says. pip check lists more."},
          .chinese = {"两个已安装的包版本不配套；报错中通常写明了包名和可接受的版本。",
                      "安装配套版本，例如 mmseg 1.x、mmdet 3.x 用 mim install \"mmcv>=2.0.0rc4,<2.2.0\"，更老的用 "
                      "mmcv-full 1.x；其余按提示 pip install \"包==版本\"。pip check 可列出其他冲突。"},
          .any_of = {{"is used but incompatible"},
                     {"is required for a normal functioning of this module, but found"},
                     {"pkg_resources.VersionConflict"},
                     {"pkg_resources.ContextualVersionConflict"},
                     {"pkg_resources.extern.packaging.version.InvalidVersion"},
                     {"Error: No module named 'mmcv.runner"},
                     {"Error: No module named 'mmcv.parallel"},
                     {"Error: No module named 'mmcv.utils"},
                     {"Error: No module named 'mmcv.cnn.utils"},
                     {"Error: No module named 'mmcv.transforms"},
                     {"Error: No module named 'mmdet.core"},
                     {"Error: No module named 'mmdet3d.core"},
                     {"Error: No module named 'mmseg.core"},
                     {"Error: No module named 'mmseg.ops"},
                     {"Error: No module named 'torch._six"},
                     {"Error: No module named 'torchvision.transforms.functional_tensor"},
                     {"Error: No module named 'transformers.deepspeed"},
                     {"Error: No module named 'pytorch_lightning.utilities.distributed"},
                     {"ImportError: cannot import name '", "from 'mmcv"},
                     {"ImportError: cannot import name '", "from 'mmengine"},
                     {"ImportError: cannot import name '", "from 'mmdet"},
                     {"ImportError: cannot import name '", "from 'mmseg"},
                     {"ImportError: cannot import name '", "from 'transformers"},
                     {"ImportError: cannot import name '", "from 'huggingface_hub"},
                     {"ImportError: cannot import name '", "from 'accelerate"},
                     {"ImportError: cannot import name '", "from 'peft"},
                     {"ImportError: cannot import name '", "from 'diffusers"},
                     {"ImportError: cannot import name '", "from 'datasets"},
                     {"ImportError: cannot import name '", "from 'timm"},
                     {"ImportError: cannot import name '", "from 'torch."},
                     {"ImportError: cannot import name '", "from 'torchvision"},
                     {"ImportError: cannot import name '", "from 'torchmetrics"},
                     {"ImportError: cannot import name '", "from 'pytorch_lightning"},
                     {"ImportError: cannot import name '", "from 'deepspeed"},
                     {"ImportError: Using the `Trainer` with `PyTorch` requires `accelerate"},
                     {"module 'mmcv' has no attribute '"}},
          .unless = {"UserWarning", "_cuda_", "site-packages/datasets/__init__", "ProcessGroup"},
      },
      {
          .id = "E2",
          .title = "extension built for another torch",
          .english =
              {"A compiled extension looks for symbols that the installed torch does not have: it was built "
               "against another version of torch, CUDA or the C++ ABI, or it is not there at all.",
               "Rebuild or reinstall it for this torch: pip uninstall mmcv mmcv-full, then mim install mmcv; "
               "for DeepSpeed or other just-in-time extensions delete the torch_extensions cache; for "
               "flash-attn and the like reinstall with --no-build-isolation --no-cache-dir. For fulldeck itself: "
               "python -m pip install --force-reinstall SOURCES with the Python that runs the ranks."},
          .chinese = {"编译的扩展所需的符号在当前 torch 中不存在：它是针对另一版本的 torch、CUDA 或 C++ ABI "
                      "编译的，或者根本没有编译。",
                      "按当前 torch 重新安装：先 pip uninstall mmcv mmcv-full，再 mim install mmcv；DeepSpeed "
                      "等即时编译的扩展请删除 torch_extensions 缓存；flash-attn 等用 --no-build-isolation "
                      "--no-cache-dir 重装。fulldeck 本身：用运行各 rank 的 Python 执行 python -m pip install "
                      "--force-reinstall SOURCES。"},
          .any_of = {{"undefined symbol: _Z"},
                     {"undefined symbol: TH"},
                     {"undefined symbol: aoti_"},
                     {"undefined symbol: PyInit_"},
                     {"mmcv/_ext", "undefined symbol"},
                     {"torch_extensions", "undefined symbol"},
                     {"Error: No module named 'mmcv._ext'"},
                     {"importlib.import_module(self.absolute_name())"},
                     {"DLL load failed while importing _ext"},
                     {"RuntimeError: Detected that PyTorch and", "were compiled with different CUDA"},
                     {"dynamic module does not define module export function"},
                     {"symbol not found in flat namespace '__ZN"},
                     {"this installation was built for torch", "and runs in torch"},
                     {"this extension was built for torch"}},
          .unless = {"UserWarning", "Warning:", "WARNING", "warn(", "Failed to load image Python extension",
                     "torch_gcu", "torch_npu", "torch_mlu", "torch_musa", "torch_xla", "_XLAC"},
      },
      {
          .id = "E3",
          .title = "name missing from a registry, or in it twice",
          .english = {"The config names a class that no imported package has registered (wrong generation of the "
                      "package, or its import is missing), or a class was registered twice by a double import.",
                      "Add the module to custom_imports=dict(imports=['my_pkg.module']) or call "
                      "register_all_modules(), check that mmcv, mmengine and the mm package are of one generation; for "
                      "\"already registered\" import the module once, or use register_module(force=True)."},
          .chinese = {"配置中的类没有被任何已导入的包注册（包的代次不对，或漏了导入），或因重复导入被注册了两次。",
                      "在 custom_imports=dict(imports=['my_pkg.module']) 中加入该模块，或调用 "
                      "register_all_modules()，并确认 mmcv、mmengine 与 mm 系列包属于同一代；若提示 already "
                      "registered，只导入一次或用 register_module(force=True)。"},
          .any_of = {{" is not in the ", " registry"},
                     {"KeyError: '", "is not in the models"},
                     {"is already registered in "},
                     {"No object named '", "registry"},
                     {"An object named '", "was already registered in"},
                     {"is already used by a Transformers config, pick another name"}},
          .unless = {"WARNING", "Warning", "INFO", "DEBUG", "docker"},
      },
      {
          .id = "E5",
          .title = "package too new for this code",
          .english = {"NumPy, setuptools, protobuf, Pillow, yapf or Python itself is newer than the code or one of its "
                      "packages can use; a name that it needs was removed.",
                      "Pin the package that the line names: pip install \"numpy<1.24\" (for np.object and np.bool), "
                      "\"numpy<2\" (for _ARRAY_API, np.float_), \"setuptools<60\" (distutils, pkg_resources), "
                      "\"protobuf<3.21\", \"Pillow<10\", \"yapf<0.40.2\"."},
          .chinese =
              {"NumPy、setuptools、protobuf、Pillow、yapf 或 Python 本身比代码所能使用的版本新，所需名称已被移除。",
               "按报错固定版本：pip install "
               "\"numpy<1.24\"（np.object、np.bool）、\"numpy<2\"（_ARRAY_API、np.float_）、\"setuptools<"
               "60\"（distutils、pkg_resources）、\"protobuf<3.21\"、\"Pillow<10\"、\"yapf<0.40.2\"。"},
          .any_of = {{"module 'numpy' has no attribute '"},
                     {"`np.", "` was a deprecated alias for"},
                     {"was removed in the NumPy 2.0 release"},
                     {"module 'distutils' has no attribute 'version'"},
                     {"Error: No module named 'distutils"},
                     {"Error: No module named 'pkg_resources'"},
                     {"Error: No module named 'imp'"},
                     {"Error: No module named 'numpy._core"},
                     {"escriptors cannot be created directly"},
                     {"escriptors cannot not be created directly"},
                     {"cannot import name 'builder' from 'google.protobuf"},
                     {"'MessageFactory' object has no attribute 'GetPrototype'"},
                     {"Error: Numpy is not available"},
                     {"ImportError: numpy.core.multiarray failed to import"},
                     {"ImportError: numpy.core.umath failed to import"},
                     {"ValueError: numpy.dtype size changed"},
                     {"ValueError: numpy.ndarray size changed"},
                     {"module compiled against API version 0x", "but this version of numpy is", "Error"},
                     {"module 'pkgutil' has no attribute 'ImpImporter'"},
                     {"cannot import name 'packaging' from 'pkg_resources'"},
                     {"module 'PIL.Image' has no attribute 'ANTIALIAS'"},
                     {"module 'PIL.Image' has no attribute 'LINEAR'"},
                     {"cannot import name 'PILLOW_VERSION' from 'PIL'"},
                     {"FormatCode() got an unexpected keyword argument 'verify'"},
                     {"ImportError: cannot import name '", "from 'collections'"},
                     {"module 'collections' has no attribute '"}},
          .unless = {"DeprecationWarning", "FutureWarning", "UserWarning"},
      },
      {
          .id = "E7",
          .title = "OpenCV needs desktop libraries",
          .english = {"The full OpenCV wheel links against libraries of a desktop (libGL, glib, X11), which a "
                      "container does not have.",
                      "pip uninstall -y opencv-python opencv-contrib-python; pip install opencv-python-headless. Or "
                      "install the libraries: apt-get install -y libgl1 libglib2.0-0 libsm6 libxext6 libxrender1."},
          .chinese = {"完整版 OpenCV 依赖桌面库（libGL、glib、X11），容器中没有这些库。",
                      "执行 pip uninstall -y opencv-python opencv-contrib-python 后 pip install "
                      "opencv-python-headless；或安装这些库：apt-get install -y libgl1 libglib2.0-0 libsm6 libxext6 "
                      "libxrender1。"},
          .any_of = {{"libGL.so", "cannot open shared object file"},
                     {"libgthread-2.0.so", "cannot open shared object file"},
                     {"libglib-2.0.so", "cannot open shared object file"},
                     {"libSM.so", "cannot open shared object file"},
                     {"libICE.so", "cannot open shared object file"},
                     {"libXrender.so", "cannot open shared object file"},
                     {"libXext.so", "cannot open shared object file"},
                     {"libEGL.so", "cannot open shared object file"}},
          .unless = {"UserWarning", "WARNING", "cannot be preloaded", "MESA"},
      },
      {
          .id = "E9",
          .title = "object that cannot be pickled",
          .confidence = Confidence::kLikely,
          .english = {"Something that lives only in its process (a module, lock, open file, lambda or local function) "
                      "stands in a config, dataset or model that has to be copied to another process or saved.",
                      "Keep such objects out of the config: in an MMEngine config wrap imports in `with read_base():` "
                      "or delete the module at the end; make lambdas named functions at module level; open files and "
                      "databases inside the worker, not in __init__."},
          .chinese = {"只存在于本进程的对象（模块、锁、打开的文件、lambda、局部函数）出现在需要复制到其他进程或保存的配"
                      "置、数据集或模型中。",
                      "不要把这类对象放进配置：MMEngine 配置中的导入放进 with read_base(): 或在末尾 del；lambda "
                      "改为模块级函数；文件和数据库在 worker 中打开，不要放在 __init__ 里。"},
          .any_of = {{"TypeError: cannot pickle '"},
                     {"TypeError: can't pickle "},
                     {"cannot pickle 'module' object"},
                     {"can't pickle module objects"},
                     {"Can't pickle local object"},
                     {"Can't get local object"},
                     {"PicklingError: Can't pickle <"}},
          .unless = {"UserWarning", "WARNING"},
      },
  };
}

}  // namespace fulldeck::diagnosis
