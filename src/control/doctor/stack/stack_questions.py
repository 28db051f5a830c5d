# Facts about a Python installation for `fulldeck doctor`: one line of JSON on descriptor 3 per answer, cheap ones first, so that
# they are available if a later step crashes or hangs. Every Python can parse this file, including Python 2.
#
# The argument: {"modules": [names to look for], "vendors": [modules to import after torch],
#                "libraries": [[file, version function]], "python_only": false}
import json
import os
import sys
import time


def tell(about, **fields):
    fields["about"] = about
    os.write(3, (json.dumps(fields) + "\n").encode("utf-8"))


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return type(error).__name__ + (": " + lines[0][:400] if lines else "")


def main():
    request = json.loads(sys.argv[1])
    tell("python", version="%d.%d.%d" % sys.version_info[:3], major=sys.version_info[0], minor=sys.version_info[1],
         executable=sys.executable, prefix=sys.prefix, base_prefix=getattr(sys, "base_prefix", sys.prefix),
         bits=64 if sys.maxsize > 2 ** 32 else 32)
    if sys.version_info[0] < 3 or request["python_only"]:
        return
    here = os.getcwd()
    shadows = []
    for name in request["modules"]:
        for file in (name + ".py", os.path.join(name, "__init__.py")):
            if os.path.isfile(os.path.join(here, file)):
                shadows.append({"module": name, "file": os.path.join(here, file)})
    sys.path[:] = [entry for entry in sys.path if entry not in ("", here)]
    tell("path", entries=sys.path, shadows=shadows)
    tell("packages", found=packages())
    tell("modules", found=modules(request["modules"]))
    ask_torch()
    for name in request["vendors"]:
        ask_vendor(name)
    ask_libraries(request["libraries"])


def packages():
    """The packages that pip has recorded, read without pip: the folder names contain names and versions."""
    found = []
    for entry in sys.path:
        try:
            names = sorted(os.listdir(entry))
        except OSError:
            continue
        for name in names:
            parts = name.rsplit(".", 1)[0].split("-")
            if name.endswith((".dist-info", ".egg-info")) and len(parts) > 1:
                found.append({"name": parts[0].lower().replace("_", "-"), "version": parts[1], "folder": os.path.join(entry, name),
                              "requires": requires(os.path.join(entry, name)) if parts[0].lower() in ASKED else []})
    return found


ASKED = ("torchvision", "torchaudio", "accelerate", "transformers", "mmengine", "mmcv", "mmsegmentation", "mmdet", "torch_gcu", "torch_npu",
         "torch_mlu", "torch_musa", "torch_xla")


def requires(folder):
    """The unconditional requirements; those with a condition are skipped."""
    found = []
    try:
        with open(os.path.join(folder, "METADATA"), encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("Requires-Dist:") and ";" not in line:
                    found.append(line.split(":", 1)[1].strip())
                elif not line.strip():
                    break
    except (OSError, IOError):
        pass
    return found


def modules(names):
    """Where each module would be imported from, without running any of its code."""
    import importlib.util

    found = {}
    for name in names:
        try:
            spec = importlib.util.find_spec(name)
        except Exception as error:
            found[name] = {"error": first_line(error)}
            continue
        if spec is None:
            continue
        folder = list(spec.submodule_search_locations)[0] if spec.submodule_search_locations else ""
        about = {"origin": spec.origin or "", "folder": folder, "compiled": False, "bytes": 0}
        for base, folders, files in os.walk(folder) if folder else [(os.path.dirname(spec.origin or ""), [], [os.path.basename(spec.origin or "")])]:
            for file in files:
                about["compiled"] = about["compiled"] or ".so" in file
                try:
                    about["bytes"] += os.path.getsize(os.path.join(base, file))
                except OSError:
                    pass
            if about["compiled"] or about["bytes"] > 1 << 20:
                break
        about.update(version_in(folder))
        found[name] = about
    return found


def version_in(folder):
    """Parses version.py of torch for __version__, cuda and hip, without importing it."""
    found = {}
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8", errors="replace") as file:
            for line in file:
                key, equals, value = line.partition("=")
                key = key.split(":")[0].strip()
                if equals and key in ("__version__", "cuda", "hip"):
                    value = value.strip().strip("'\"")
                    found[key.strip("_")] = "" if value == "None" else value
    except OSError:
        pass
    return found


def ask_torch():
    begun = time.time()
    try:
        import torch
    except BaseException as error:
        return tell("torch", imports=False, error=first_line(error))
    answer = {"imports": True, "version": torch.__version__, "seconds": time.time() - begun, "file": getattr(torch, "__file__", "") or ""}
    for name in ("cuda", "hip"):
        answer[name] = getattr(getattr(torch, "version", None), name, None) or ""
    try:
        import torch.distributed as distributed
        for name in ("nccl", "gloo", "mpi"):
            answer[name] = bool(getattr(distributed, "is_%s_available" % name)())
    except Exception as error:
        answer["distributed_error"] = first_line(error)
    tell("torch", **answer)


def ask_vendor(name):
    tell("importing", module=name)
    try:
        module = __import__(name)
    except BaseException as error:
        return tell("vendor", module=name, imports=False, error=first_line(error))
    answer = {"module": name, "imports": True, "version": str(getattr(module, "__version__", ""))}
    kind = name.replace("torch_", "")
    namespace = getattr(sys.modules.get("torch"), kind, None) or module
    try:
        answer["available"] = bool(namespace.is_available())
        answer["count"] = int(namespace.device_count())
    except Exception as error:
        answer["asking_error"] = first_line(error)
    tell("vendor", **answer)


def mapped():
    found = []
    with open("/proc/self/maps", errors="replace") as file:
        for line in file:
            path = line.split(None, 5)[5].strip() if len(line.split(None, 5)) == 6 else ""
            if path.startswith("/") and path not in found:
                found.append(path)
    return found


def ask_libraries(libraries):
    """The file that each name resolves to in this process: already loaded by torch, or found by the loader."""
    import ctypes

    for file, function in libraries:
        stem = file.split(".so")[0] + ".so"
        before = [path for path in mapped() if os.path.basename(path).startswith(stem)]
        answer = {"library": file, "path": before[0] if before else "", "already_loaded": bool(before)}
        tell("loading", library=file)
        try:
            library = ctypes.CDLL(before[0] if before else file)
            after = [path for path in mapped() if os.path.basename(path).startswith(stem)]
            answer["path"] = answer["path"] or (after[0] if after else "")
            version = ctypes.c_int()
            if function and hasattr(library, function) and getattr(library, function)(ctypes.byref(version)) == 0:
                answer["version"] = version.value
        except OSError as error:
            answer["error"] = str(error)[:400]
        tell("library", **answer)


main()
