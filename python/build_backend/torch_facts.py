"""Describes the interpreter that runs this file and its torch to a build, as one line of JSON, the last line on stdout:

  name, cache_tag, version, extension_suffix, include   of Python; `include` is where Python.h should be
  torch            version of torch; null: it is not installed, or `failure` says why it cannot be imported
  torch_folder     its folder
  cxx11_abi        whether its C++ was compiled with the new ABI of the C++ library
  definitions      what an extension must define so that it and torch know each other's classes (pybind11)
  cuda_includes    the include folders of CUDA and NCCL if torch has CUDA and both are installed; otherwise empty

With the argument --without-torch it ignores torch. Uses no other file of fulldeck and only Python 3.8's standard
library.
"""
import glob
import importlib.util
import json
import os
import sys
import sysconfig


def cuda_includes(torch):
    """Folders that together contain cuda_runtime_api.h and nccl.h: of a CUDA toolkit, or of NVIDIA's Python
    packages."""
    if not torch.version.cuda:
        return []
    site = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
    toolkit = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    folders = [os.path.join(toolkit, "include")] + sorted(glob.glob(os.path.join(site, "nvidia", "*", "include"))) + ["/usr/include"]

    def first(header):
        return next((folder for folder in folders if os.path.exists(os.path.join(folder, header))), None)

    found = [first(header) for header in ("cuda_runtime_api.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h", "nccl.h")]
    if None in found:
        return []
    return [folder for folder in dict.fromkeys(found) if folder != "/usr/include"]


def facts(with_torch):
    found = {
        "name": sys.implementation.name, "cache_tag": sys.implementation.cache_tag, "version": list(sys.version_info[:2]),
        "extension_suffix": sysconfig.get_config_var("EXT_SUFFIX"), "include": sysconfig.get_path("include"),
        "torch": None, "torch_folder": "", "cxx11_abi": True, "definitions": [], "cuda_includes": [], "failure": "",
    }
    if not with_torch or importlib.util.find_spec("torch") is None:
        return found
    try:
        import torch

        if not torch.distributed.is_available():
            raise RuntimeError("it was built without torch.distributed")
        found["torch_folder"] = os.path.dirname(torch.__file__)
        found["cxx11_abi"] = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
        # Since about pybind11 2.12, torch leaves these to the compiler.
        for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
            value = getattr(torch._C, "_PYBIND11_" + name, None)
            if value is not None:
                found["definitions"].append('PYBIND11_{}="{}"'.format(name, value))
        found["cuda_includes"] = cuda_includes(torch)
        found["torch"] = str(torch.__version__)
    except Exception as error:
        found["failure"] = "{}: {}".format(type(error).__name__, error)
    return found


if __name__ == "__main__":
    # Querying torch must not load plugins.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    # Python puts the folder of this file first on the path; its modules are not meant for others.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != os.path.dirname(os.path.abspath(__file__))]
    print("\n" + json.dumps(facts("--without-torch" not in sys.argv[1:])))
